package evidence

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"ordercheck/fp16"
	"ordercheck/step"
)

// vector is a tensor in memory.
type vector []float64

func (v vector) Len() int { return len(v) }

func (v vector) ReadAt(dst []float64, off int) (int, error) {
	n := copy(dst, v[off:])
	if n < len(dst) {
		return n, io.EOF
	}
	return n, nil
}

// Formats of gradients and how they round; normal is the smallest exponent of a
// normal number.
var formats = []struct {
	name   string
	round  func(float64) float64
	ulps   func(x float64, n int) float64 // the nth neighbour, away from zero
	normal int
	top    int
}{
	{"F32", func(x float64) float64 { return float64(float32(x)) },
		func(x float64, n int) float64 {
			return float64(math.Float32frombits(math.Float32bits(float32(x)) + uint32(n)))
		}, -126, 127},
	{"F16", func(x float64) float64 { return float64(fp16.HalfFromFloat32(float32(x)).Float32()) },
		func(x float64, n int) float64 {
			return float64((fp16.HalfFromFloat32(float32(x)) + fp16.Half(n)).Float32())
		}, -14, 15},
	{"BF16", func(x float64) float64 { return float64(fp16.BFloatFromFloat32(float32(x)).Float32()) },
		func(x float64, n int) float64 {
			return float64((fp16.BFloatFromFloat32(float32(x)) + fp16.BFloat(n)).Float32())
		}, -126, 127},
}

// slowCompare is the obvious comparison: a pass over the whole tensors for each
// thing that is asked.
func slowCompare(before, after []float64, f Format) Change {
	c := Change{Before: slowStats(before), After: slowStats(after), Format: f, Lo: math.Inf(1), Hi: math.Inf(-1), CutLo: math.Inf(1)}
	same := func(i int) bool {
		return before[i] == after[i] || math.IsNaN(before[i]) && math.IsNaN(after[i])
	}
	both := func(i int) bool { return isFinite(before[i]) && isFinite(after[i]) }
	for i := range before {
		if !same(i) {
			c.Moved++
		}
	}
	for i := range before {
		if !same(i) && isFinite(after[i]) {
			c.CutLo = min(c.CutLo, math.Abs(after[i]))
			c.CutHi = max(c.CutHi, math.Abs(after[i]))
		}
	}
	for i := range before {
		grew := math.Abs(after[i]) > math.Abs(before[i]) || math.Signbit(after[i]) != math.Signbit(before[i])
		if !same(i) && isFinite(after[i]) && grew {
			c.Grew++
		}
	}
	for i := range before {
		if same(i) && isFinite(before[i]) {
			c.Stay = max(c.Stay, math.Abs(before[i]))
		}
	}
	for i := range before {
		if isFinite(before[i]) && !isFinite(after[i]) {
			c.Poisoned++
		}
		if !isFinite(before[i]) && isFinite(after[i]) {
			c.Hidden++
		}
	}
	for i := range before {
		if both(i) {
			c.Dot += float64(before[i] * after[i])
			c.DiffSq += float64((after[i] - before[i]) * (after[i] - before[i]))
			c.Sq[0] += float64(before[i] * before[i])
			c.Sq[1] += float64(after[i] * after[i])
		}
	}
	for i := range before {
		if both(i) && before[i] != 0 && math.Abs(after[i]) < f.Tiny {
			c.Lost = max(c.Lost, math.Abs(before[i]))
		}
	}
	for i := range before {
		if both(i) && before[i] != 0 && math.Abs(after[i]) >= f.Tiny {
			c.Used++
			c.Lo, c.Hi = min(c.Lo, after[i]/before[i]), max(c.Hi, after[i]/before[i])
		}
	}
	return c
}

func slowStats(v []float64) Stats {
	s := Stats{N: len(v)}
	for _, x := range v {
		if !isFinite(x) {
			s.NonFinite++
		}
		if math.IsNaN(x) {
			s.NaN++
		}
	}
	for _, x := range v {
		if isFinite(x) {
			s.Max = max(s.Max, math.Abs(x))
			s.SumSq += float64(x * x)
		}
	}
	return s
}

// drawTensors fills two tensors with what a snapshot may hold: numbers of all
// sizes, zeros of both signs, subnormals, what is not finite, and in places the
// same, a multiple, or a limit. Lengths lie about those of the parts in which
// tensors are read.
func drawTensors(t *rapid.T) (before, after vector) {
	n := rapid.SampledFrom([]int{0, 1, 2, 3, 17, chunk - 1, chunk, chunk + 1, 2*chunk + 5}).Draw(t, "length")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	odd := rapid.IntRange(0, 3).Draw(t, "share of odd values")
	value := func() float64 {
		switch r.IntN(20 * (4 - odd)) {
		case 0:
			return math.NaN()
		case 1:
			return math.Inf(1)
		case 2:
			return math.Inf(-1)
		case 3:
			return 0
		case 4:
			return math.Copysign(0, -1)
		case 5:
			return float64(math.Float32frombits(r.Uint32N(1 << 23)))
		}
		return float64(float32(r.NormFloat64() * math.Pow(2, float64(r.IntN(40)-20))))
	}
	relation := rapid.IntRange(0, 3).Draw(t, "relation")
	for range n {
		b := value()
		a := value()
		switch {
		case relation == 1:
			a = b
		case relation == 2:
			a = float64(float32(0.3 * b))
		case relation == 3 && math.Abs(b) > 1:
			a = math.Copysign(1, b)
		case relation == 3:
			a = b
		}
		before, after = append(before, b), append(after, a)
	}
	return before, after
}

// spelledOut writes a value so that NaN is NaN and zeros have signs.
func spelledOut(v any) string { return fmt.Sprintf("%+v", v) }

func TestPropertyCompare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawTensors(t)
		format := FormatOf(rapid.SampledFrom([]string{"F16", "BF16", "F32", "F64"}).Draw(t, "format"))
		got, err := Compare(before, after, format)
		if err != nil {
			t.Fatal(err)
		}
		if want := slowCompare(before, after, format); spelledOut(got) != spelledOut(want) {
			t.Fatalf("got\n%+v\nwant\n%+v", got, want)
		}
		if got.Same() != (got.Moved == 0) {
			t.Fatalf("%d elements moved, Same() = %v", got.Moved, got.Same())
		}
	})
}

func TestPropertyMeasure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, _ := drawTensors(t)
		got, err := Measure(v)
		if want := slowStats(v); err != nil || spelledOut(got) != spelledOut(want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
		if got.Norm() != math.Sqrt(got.SumSq) {
			t.Fatalf("Norm() = %g for %+v", got.Norm(), got)
		}
		zero := true
		for _, x := range v {
			zero = zero && x == 0
		}
		if got.Zero() != zero {
			t.Fatalf("Zero() = %v", got.Zero())
		}
	})
}

// drawNormals draws numbers of a format that stay normal when they are multiplied
// by 2^-shift, and a little more.
func drawNormals(t *rapid.T, format, shift int) vector {
	f := formats[format]
	v := make(vector, rapid.IntRange(1, 40).Draw(t, "length"))
	for i := range v {
		e := rapid.IntRange(f.normal+shift+2, f.top-1).Draw(t, "exponent")
		m := rapid.Float64Range(1, 1.9).Draw(t, "mantissa")
		v[i] = f.round(math.Ldexp(m, e))
		if rapid.Bool().Draw(t, "negative") {
			v[i] = -v[i]
		}
	}
	return v
}

// Divided by a power of two, float32 gradients tell just that number, also where
// some of them vanish.
func TestPropertyPowersOfTwoAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(-20, 60).Draw(t, "k")
		before := drawNormals(t, 0, max(k, 0))
		for i := range before {
			if k < 0 && math.Abs(before[i]) > 0x1p100 {
				before[i] *= 0x1p-30 // stays finite
			}
		}
		factor := math.Ldexp(1, -k)
		for range rapid.IntRange(0, 3).Draw(t, "vanishing") {
			before = append(before, rapid.SampledFrom([]float64{0, 0x1.8p-126, -0x1p-130, 0x1p-149}).Draw(t, "small"))
		}
		after := make(vector, len(before))
		for i := range before {
			after[i] = float64(float32(before[i] * factor))
		}
		c, err := Compare(before, after, FormatOf("F32"))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := c.Factor(); !ok || got != factor {
			t.Fatalf("Factor() = %g, %v for 2^%d", got, ok, -k)
		}
	})
}

// A coefficient below 1 is found within what rounding allows. If one element is
// off by ten units in the last place or more it is found no longer: a unit is
// between half of Eps and Eps, and the others may be off by half a unit.
func TestPropertyCoefficients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		which := rapid.IntRange(0, len(formats)-1).Draw(t, "format")
		f, format := formats[which], FormatOf(formats[which].name)
		before := drawNormals(t, which, 6)
		c := rapid.Float64Range(0x1p-6, 1).Draw(t, "coefficient")
		after := make(vector, len(before))
		for i := range before {
			after[i] = f.round(before[i] * c)
		}
		change, err := Compare(before, after, format)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := change.Factor()
		if !ok || math.Abs(got-c) > format.Slack()*c {
			t.Fatalf("%s: Factor() = %g, %v for %g", f.name, got, ok, c)
		}
		if len(after) < 2 {
			return
		}
		at := rapid.IntRange(0, len(after)-1).Draw(t, "element")
		after[at] = f.ulps(after[at], rapid.IntRange(10, 40).Draw(t, "units in the last place"))
		if change, err = Compare(before, after, format); err != nil {
			t.Fatal(err)
		}
		if got, ok := change.Factor(); ok {
			t.Fatalf("%s: element %d is off, but Factor() = %g for %g", f.name, at, got, c)
		}
	})
}

// An element that vanishes although the factor would have kept it normal was not
// multiplied by it.
func TestFactorOfVanishing(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after vector
		factor        float64
		ok            bool
	}{
		{"nothing to tell", vector{0, 0}, vector{0, 0}, 0, false},
		{"all vanish", vector{1, 1}, vector{0, 0}, 0, false},
		{"one vanishes", vector{1, 1}, vector{0, 0.5}, 0, false},
		{"one vanishes rightly", vector{0x1p-126, 1}, vector{0x1p-127, 0.5}, 0.5, true},
		{"appears from zero", vector{0, 1}, vector{3, 0.5}, 0.5, true},
		{"not finite after", vector{1, 1}, vector{math.Inf(1), 0.5}, 0.5, true},
		{"not finite before", vector{math.NaN(), 1}, vector{3, 0.5}, 0.5, true},
		{"negative", vector{1, 2}, vector{-3, -6}, -3, true},
		{"opposite signs", vector{1, 1}, vector{-3, 3}, 0, false},
		{"two factors", vector{1, 1}, vector{0.5, 0.25}, 0, false},
	} {
		change, err := Compare(c.before, c.after, FormatOf("F32"))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := change.Factor(); got != c.factor || ok != c.ok {
			t.Errorf("%s: Factor() = %g, %v", c.name, got, ok)
		}
	}
}

// Cut at a limit, and nothing else: the limit is told.
func TestPropertyCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawNormals(t, 0, 0)
		limit := math.Abs(before[rapid.IntRange(0, len(before)-1).Draw(t, "limit")])
		after, moved := make(vector, len(before)), false
		for i, b := range before {
			after[i] = max(-limit, min(limit, b))
			moved = moved || after[i] != b
		}
		c, err := Compare(before, after, FormatOf("F32"))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := c.Cut()
		if ok != moved || moved && got != limit {
			t.Fatalf("Cut() = %g, %v at %g", got, ok, limit)
		}
	})
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after vector
		limit         float64
		ok            bool
	}{
		{"cut", vector{3, -2, 1}, vector{1, -1, 1}, 1, true},
		{"infinite cut", vector{math.Inf(1), math.Inf(-1), 0.5}, vector{1, -1, 0.5}, 1, true},
		{"NaN stays", vector{3, math.NaN()}, vector{1, math.NaN()}, 1, true},
		{"nothing moved", vector{1}, vector{1}, 0, false},
		{"two limits", vector{3, 3}, vector{1, 2}, 0, false},
		{"a larger one stays", vector{3, 2}, vector{1, 2}, 1, false},
		{"a smaller one grows", vector{3, 0.5}, vector{1, 1}, 0, false},
		{"another sign", vector{3, -3}, vector{1, 1}, 0, false},
		{"zeroed", vector{3, 2}, vector{0, 0}, 0, false},
		{"poisoned", vector{3, 1}, vector{1, math.NaN()}, 0, false},
	} {
		change, err := Compare(c.before, c.after, FormatOf("F32"))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := change.Cut(); got != c.limit || ok != c.ok {
			t.Errorf("%s: Cut() = %g, %v", c.name, got, ok)
		}
	}
}

// The factor and the cosine are those of the elements that are finite on both sides.
func TestPropertyFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawTensors(t)
		var dot, b, a float64
		for i := range before {
			if isFinite(before[i]) && isFinite(after[i]) {
				dot, b, a = dot+before[i]*after[i], b+before[i]*before[i], a+after[i]*after[i]
			}
		}
		c, err := Compare(before, after, FormatOf("F32"))
		if err != nil {
			t.Fatal(err)
		}
		factor, cosine := c.Fit()
		if b == 0 || a == 0 {
			if factor != 0 || cosine != 0 {
				t.Fatalf("Fit() = %g, %g of nothing", factor, cosine)
			}
			return
		}
		if math.Abs(factor-dot/b) > 1e-9*math.Abs(factor) || math.Abs(cosine-dot/math.Sqrt(a*b)) > 1e-9 {
			t.Fatalf("Fit() = %g, %g, want %g, %g", factor, cosine, dot/b, dot/math.Sqrt(a*b))
		}
	})
}

func TestFitOfNothing(t *testing.T) {
	for _, pair := range [][2]vector{{{0, 0}, {1, 2}}, {{1, 2}, {0, 0}}, {{}, {}}, {{math.NaN()}, {1}}} {
		c, err := Compare(pair[0], pair[1], FormatOf("F32"))
		if err != nil {
			t.Fatal(err)
		}
		if factor, cosine := c.Fit(); factor != 0 || cosine != 0 {
			t.Errorf("%v and %v: Fit() = %g, %g", pair[0], pair[1], factor, cosine)
		}
	}
}

// broken fails, or ends, at an element.
type broken struct {
	vector
	at  int
	err error
}

func (b broken) ReadAt(dst []float64, off int) (int, error) {
	if off+len(dst) <= b.at {
		return b.vector.ReadAt(dst, off)
	}
	n := copy(dst, b.vector[off:b.at])
	return n, b.err
}

func TestCompareFails(t *testing.T) {
	long, disk := make(vector, chunk+100), errors.New("the disk is on fire")
	if _, err := Compare(long, long[1:], Format{}); err == nil || err.Error() != "8292 elements before, 8291 after" {
		t.Errorf("of two lengths: %v", err)
	}
	if _, err := Compare(long[1:], long, Format{}); err == nil || err.Error() != "8291 elements before, 8292 after" {
		t.Errorf("of two lengths: %v", err)
	}
	for _, c := range []struct {
		err, want error
	}{{disk, disk}, {io.EOF, io.ErrUnexpectedEOF}, {nil, io.ErrUnexpectedEOF}} {
		bad := broken{long, chunk + 7, c.err}
		for _, pair := range [][2]Values{{bad, long}, {long, bad}} {
			if got, err := Compare(pair[0], pair[1], Format{}); !errors.Is(err, c.want) || got != (Change{}) {
				t.Errorf("Compare: %v, want %v", err, c.want)
			}
		}
		if got, err := Measure(bad); !errors.Is(err, c.want) || got != (Stats{}) {
			t.Errorf("Measure: %v, want %v", err, c.want)
		}
	}
	// An end that comes with the last element is none.
	if got, err := Measure(eager{long}); err != nil || got.N != len(long) {
		t.Errorf("%d elements, %v", got.N, err)
	}
}

// eager tells of the end as soon as it is reached.
type eager struct{ vector }

func (e eager) ReadAt(dst []float64, off int) (int, error) {
	n := copy(dst, e.vector[off:])
	if off+n == len(e.vector) {
		return n, io.EOF
	}
	return n, nil
}

func TestFormats(t *testing.T) {
	for _, f := range formats {
		format := FormatOf(f.name)
		if next := f.ulps(1, 1); next-1 != format.Eps {
			t.Errorf("%s: after 1 comes %g, but Eps is %g", f.name, next, format.Eps)
		}
		if format.Tiny != math.Ldexp(1, f.normal) {
			t.Errorf("%s: Tiny is %g", f.name, format.Tiny)
		}
	}
	if f := FormatOf("I64"); f.Eps != 0x1p-52 || f.Tiny != 0x1p-1022 {
		t.Errorf("I64: %+v", f)
	}
}

// Summaries are compared by their samples, and by their sums where samples tell nothing.
func TestCompareSummaries(t *testing.T) {
	summary := func(n, nonFinite int, sumSq float64, values ...float64) step.Summary {
		s := step.Summary{N: n, NonFinite: nonFinite, SumSq: sumSq, Max: 9}
		for i, v := range values {
			s.Sample = append(s.Sample, step.Sample{Index: 7 * i, Value: v})
		}
		return s
	}
	other := summary(100, 0, 50, 1, 2)
	other.Sample[0].Index, other.Sample[1].Index = 3, 5
	for _, c := range []struct {
		name          string
		before, after step.Summary
		same          bool
		factor        float64
		ok            bool
		poisoned      int
		hidden        int
	}{
		{"the same", summary(100, 0, 50, 1, 2), summary(100, 0, 50, 1, 2), true, 1, true, 0, 0},
		{"halved", summary(100, 0, 50, 1, 2), summary(100, 0, 12.5, 0.5, 1), false, 0.5, true, 0, 0},
		{"no one factor", summary(100, 0, 50, 1, 2), summary(100, 0, 60, 0.5, 2), false, 0, false, 0, 0},
		{"moved where nobody sampled", summary(100, 0, 50, 1, 2), summary(100, 0, 51, 1, 2), false, 0, false, 0, 0},
		{"other samples", summary(100, 0, 50, 1, 2), other, true, 0, false, 0, 0},
		{"poisoned", summary(100, 1, 50, 1), summary(100, 4, 12.5, 0.5), false, 0.5, true, 3, 0},
		{"hidden", summary(100, 4, 50, 1), summary(100, 1, 12.5, 0.5), false, 0.5, true, 0, 3},
		{"no samples", summary(100, 0, 50), summary(100, 0, 50), true, 0, false, 0, 0},
	} {
		got := CompareSummaries(c.before, c.after)
		factor, ok := got.Factor()
		if got.Same() != c.same || factor != c.factor || ok != c.ok || got.Poisoned != c.poisoned || got.Hidden != c.hidden {
			t.Errorf("%s: same %v, factor %g, %v, poisoned %d, hidden %d", c.name, got.Same(), factor, ok, got.Poisoned, got.Hidden)
		}
		if got.Before != StatsOf(c.before) || got.After.N != c.after.N || got.After.SumSq != c.after.SumSq || got.After.NonFinite != c.after.NonFinite || got.After.Max != 9 {
			t.Errorf("%s: statistics %+v, %+v", c.name, got.Before, got.After)
		}
	}
}
