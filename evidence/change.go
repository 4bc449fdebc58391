package evidence

import (
	"fmt"
	"io"
	"math"

	"ordercheck/step"
)

// Values is a tensor that is read in parts. Elements are exact in float64.
type Values interface {
	Len() int
	ReadAt(dst []float64, off int) (int, error)
}

// Stats describes one tensor.
type Stats struct {
	N         int
	NonFinite int
	NaN       int     // of these
	Max       float64 // largest magnitude of a finite element
	SumSq     float64 // Σx² in float64 over finite elements, in index order
}

// Norm is the L2 norm of the finite elements.
func (s Stats) Norm() float64 { return math.Sqrt(s.SumSq) }

// Zero reports whether every element is zero.
func (s Stats) Zero() bool { return s.NonFinite == 0 && s.Max == 0 }

func (s *Stats) add(v float64) {
	s.N++
	if math.IsNaN(v) || math.IsInf(v, 0) {
		s.NonFinite++
		if math.IsNaN(v) {
			s.NaN++
		}
		return
	}
	s.Max = max(s.Max, math.Abs(v))
	s.SumSq += float64(v * v)
}

func (s *Stats) join(t Stats) {
	s.N += t.N
	s.NonFinite += t.NonFinite
	s.NaN += t.NaN
	s.Max = max(s.Max, t.Max)
	s.SumSq += t.SumSq
}

// Change is what one tensor's elements did between two snapshots.
type Change struct {
	Before, After Stats
	Moved         int // elements whose value is another one (NaN by class)

	// Ratios after/before lie in [Lo, Hi], over Used elements: finite and not
	// zero before, finite and not subnormal after.
	Lo, Hi float64
	Used   int
	Lost   float64 // largest |before| of an element that is zero or subnormal after
	Dot    float64 // Σ before·after over elements finite in both
	Sq     [2]float64
	DiffSq float64 // Σ (after − before)² over them

	// Elements that moved have |after| in [CutLo, CutHi]; those that did not
	// have |before| of at most Stay.
	CutLo, CutHi, Stay float64
	Grew               int // moved elements with |after| > |before|

	Poisoned int // finite before, not finite after
	Hidden   int // not finite before, finite after
	Format   Format
}

// Format is what rounding a tensor's storage allows.
type Format struct {
	Eps  float64 // spacing of the numbers just above 1
	Tiny float64 // smallest normal number
}

// FormatOf returns the format of a safetensors dtype; integers are exact.
func FormatOf(dtype string) Format {
	switch dtype {
	case "F16":
		return Format{0x1p-10, 0x1p-14}
	case "BF16":
		return Format{0x1p-7, 0x1p-126}
	case "F32":
		return Format{0x1p-23, 0x1p-126}
	}
	return Format{0x1p-52, 0x1p-1022}
}

const chunk = 8192

// Compare reads two tensors of the same length once, side by side.
func Compare(before, after Values, format Format) (Change, error) {
	n := before.Len()
	if after.Len() != n {
		return Change{}, fmt.Errorf("%d elements before, %d after", n, after.Len())
	}
	c := Change{Format: format, Lo: math.Inf(1), Hi: math.Inf(-1), CutLo: math.Inf(1)}
	var bufB, bufA [chunk]float64
	for off := 0; off < n; off += chunk {
		m := min(chunk, n-off)
		b, a := bufB[:m], bufA[:m]
		if err := readFull(before, b, off); err != nil {
			return Change{}, err
		}
		if err := readFull(after, a, off); err != nil {
			return Change{}, err
		}
		for i := range b {
			c.add(b[i], a[i])
		}
	}
	return c, nil
}

func (c *Change) add(b, a float64) {
	c.Before.add(b)
	c.After.add(a)
	finiteB, finiteA := isFinite(b), isFinite(a)
	if b != a && !(math.IsNaN(b) && math.IsNaN(a)) {
		c.Moved++
		if finiteA {
			c.CutLo, c.CutHi = min(c.CutLo, math.Abs(a)), max(c.CutHi, math.Abs(a))
			if math.Abs(a) > math.Abs(b) || math.Signbit(a) != math.Signbit(b) {
				c.Grew++
			}
		}
	} else if finiteB {
		c.Stay = max(c.Stay, math.Abs(b))
	}
	switch {
	case finiteB && !finiteA:
		c.Poisoned++
	case !finiteB && finiteA:
		c.Hidden++
	}
	if !finiteB || !finiteA {
		return
	}
	c.Dot += float64(b * a)
	c.DiffSq += float64((a - b) * (a - b))
	c.Sq[0] += float64(b * b)
	c.Sq[1] += float64(a * a)
	if b == 0 {
		return
	}
	if math.Abs(a) < c.Format.Tiny {
		c.Lost = max(c.Lost, math.Abs(b))
		return
	}
	r := a / b
	c.Lo, c.Hi = min(c.Lo, r), max(c.Hi, r)
	c.Used++
}

// Same reports whether no element moved.
func (c Change) Same() bool { return c.Moved == 0 }

// Slack is the relative spread that rounding gives to a ratio when a
// multiplication by 1/S and one by a coefficient are rounded on their own.
func (f Format) Slack() float64 { return 4 * f.Eps }

// Factor returns the number that every element was multiplied by, if there is
// one within rounding. ok is false where no element can tell.
func (c Change) Factor() (factor float64, ok bool) {
	if c.Used == 0 {
		return 0, false
	}
	mid := (c.Lo + c.Hi) / 2
	if !(c.Hi-c.Lo <= c.Format.Slack()*math.Abs(mid)) { // nor where both are infinite
		return 0, false
	}
	if c.Lost*math.Abs(mid) > 2*c.Format.Tiny {
		return 0, false
	}
	if c.Lo == c.Hi {
		return c.Lo, true
	}
	return mid, true
}

// Cut returns the limit that every larger element was cut to, if that is what happened.
func (c Change) Cut() (limit float64, ok bool) {
	if c.Moved == 0 || c.Grew > 0 || c.CutLo != c.CutHi || c.CutHi == 0 || c.Poisoned > 0 {
		return 0, false
	}
	return c.CutHi, c.Stay <= c.CutHi
}

// Fit returns the least-squares factor after ≈ f·before and the cosine between them.
func (c Change) Fit() (factor, cosine float64) {
	if c.Sq[0] == 0 || c.Sq[1] == 0 {
		return 0, 0
	}
	return c.Dot / c.Sq[0], c.Dot / math.Sqrt(c.Sq[0]) / math.Sqrt(c.Sq[1])
}

// CompareSummaries is Compare for tensors of which only summaries were kept.
// The samples stand for the elements.
func CompareSummaries(before, after step.Summary) Change {
	c := Change{Format: Format{0x1p-23, 0x1p-126}, Lo: math.Inf(1), Hi: math.Inf(-1), CutLo: math.Inf(1)}
	for i := 0; i < len(before.Sample) && i < len(after.Sample); i++ {
		if before.Sample[i].Index == after.Sample[i].Index {
			c.add(before.Sample[i].Value, after.Sample[i].Value)
		}
	}
	if c.Moved == 0 && before.SumSq != after.SumSq {
		c.Moved = 1 // elements that were not sampled moved
		c.Lo, c.Hi = math.Inf(-1), math.Inf(1)
	}
	c.Before, c.After = StatsOf(before), StatsOf(after)
	c.Poisoned = max(0, after.NonFinite-before.NonFinite)
	c.Hidden = max(0, before.NonFinite-after.NonFinite)
	return c
}

// StatsOf turns a summary into the statistics it holds.
func StatsOf(s step.Summary) Stats {
	return Stats{N: s.N, NonFinite: s.NonFinite, Max: s.Max, SumSq: s.SumSq}
}

// Measure reads one tensor once.
func Measure(v Values) (Stats, error) {
	var s Stats
	var buf [chunk]float64
	for off := 0; off < v.Len(); off += chunk {
		part := buf[:min(chunk, v.Len()-off)]
		if err := readFull(v, part, off); err != nil {
			return Stats{}, err
		}
		for _, x := range part {
			s.add(x)
		}
	}
	return s, nil
}

func readFull(v Values, dst []float64, off int) error {
	n, err := v.ReadAt(dst, off)
	if n == len(dst) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
