package check

import (
	"math"
	"slices"
	"sort"

	"ordercheck/fp16"
)

// trainer is what the loops of the stories do to numbers: two tensors whose
// gradients are rounded to binary16 after they were multiplied by the scale, and
// overflow as they do there; AdamW or SGD in float32; loss scalers.
type trainer struct {
	growth   int          // clean steps until the scale doubles; 0: constant
	overflow map[int]bool // attempts whose gradients are too large for FP16
	in       []string     // the tensors in which they are
	double   bool         // two optimizers: 0 owns w, 1 owns b
	shards   bool         // two ranks: 0 owns w, 1 owns b
	masters  bool         // FP16 parameters w and b, whose float32 copies w32 and b32 are stepped
	sgd      bool
	plain    bool // no momentum
	flat     bool // gradients of one size, as an absolute loss has
	halves   bool // FP16 parameters that are stepped as they are
	bf16     bool // computed in BF16
	lr       float64

	apart bool // two ranks with data of their own, each owns both
	where int  // the rank where gradients overflow; -1: all

	rank, attempt, micro int
	left                 bool       // the rest of the attempt is left out
	began                float64    // the scale at its start
	clipNorm             float64    // what the last clip returned
	lastLoss             scaledLoss // the last one that was scaled
	scalers              map[string]*lossScaler
	waiting              []scaledLoss // for their backward
	losses               int
	hook                 func(g []float64) // on each gradient of the next backward
	grad                 map[string][]float64
	param                map[string][]float64
	state                map[string]map[string][]float64 // by parameter, then kind
}

type lossScaler struct {
	scale float64
	clean int
	found map[string]bool // verdicts since the last update, by optimizer
}

type scaledLoss struct{ loss, scale float64 }

var tensorSizes = map[string]int{"w": 48, "b": 16, "w32": 48, "b32": 16}

// begin forgets everything but the arguments.
func (t *trainer) begin(rank int, scale float64) {
	t.rank, t.scalers, t.waiting, t.losses, t.lr = rank, map[string]*lossScaler{}, nil, 0, 0.01
	t.grad, t.param, t.state = map[string][]float64{}, map[string][]float64{}, map[string]map[string][]float64{}
	for _, id := range []string{"0", "1"} {
		t.scalers[id] = &lossScaler{scale: scale, found: map[string]bool{}}
	}
	for p, n := range tensorSizes {
		t.param[p] = make([]float64, n)
		for i := range t.param[p] {
			t.param[p][i] = single(0.3 * math.Cos(float64(7*i+n)))
		}
	}
}

// owned are the parameters of an optimizer.
func (t *trainer) owned(opt string) []string {
	switch {
	case t.masters:
		return []string{"b32", "w32"}
	case t.double && opt == "0", t.shards && t.rank == 0:
		return []string{"w"}
	case t.double, t.shards:
		return []string{"b"}
	}
	return []string{"b", "w"}
}

// model are the parameters that a backward fills.
func (t *trainer) model() []string {
	if t.shards {
		return t.owned("")
	}
	return []string{"b", "w"}
}

// finite is a check by hand. Ranks join their verdicts.
func (t *trainer) finite(on []string) bool {
	for _, p := range on {
		for _, v := range t.grad[p] {
			if math.IsInf(v, 0) || math.IsNaN(v) {
				return false
			}
		}
	}
	return true
}

func (t *trainer) joined(finite bool) bool {
	return finite && !(t.shards && t.overflow[t.attempt])
}

// fill is a backward: the true gradient times the weight of the loss and the
// scale, rounded to binary16, is added.
func (t *trainer) fill(on []string, weight, scale float64, fine bool) {
	for _, p := range on {
		n := tensorSizes[p]
		g := make([]float64, n)
		for i := range g {
			v := weight * float64(16+n) / 128 * math.Sin(float64((i+1)*(i+3)*(7*t.attempt+3*t.micro+t.data()+2)+n))
			if t.flat {
				v = weight * math.Copysign(0.3, v)
			}
			if t.overflow[t.attempt] && !fine && (t.where < 0 || t.where == t.rank) && slices.Contains(t.in, p) {
				v *= 1e9
			}
			if t.bf16 {
				g[i] = bfloat(v * scale)
			} else if t.masters {
				g[i] = half(v * scale)
			} else {
				g[i] = 256 * half(v*scale/256) // of a layer whose gradients are 256 times smaller
			}
		}
		if t.hook != nil {
			t.hook(g)
		}
		if t.grad[p] == nil {
			t.grad[p] = make([]float64, n)
		}
		for i := range g {
			t.grad[p][i] = t.round(p, t.grad[p][i]+g[i])
		}
	}
	t.hook = nil
}

// data is another batch on each rank.
func (t *trainer) data() int {
	if t.apart {
		return 5 * t.rank
	}
	return 0
}

// round keeps a gradient in the format of its tensor.
func (t *trainer) round(p string, v float64) float64 {
	if t.half(p) {
		return half(v)
	}
	return single(v)
}

func (t *trainer) half(p string) bool { return t.halves || t.masters && len(p) == 1 }

func half(v float64) float64   { return float64(fp16.HalfFromFloat64(v).Float32()) }
func single(v float64) float64 { return float64(float32(v)) }

// bfloat keeps eight bits.
func bfloat(v float64) float64 {
	m, e := math.Frexp(v)
	return math.Ldexp(math.RoundToEven(256*m)/256, e)
}

func (t *trainer) multiply(on []string, c float64) {
	for _, p := range on {
		for i, v := range t.grad[p] {
			t.grad[p][i] = t.round(p, v*c)
		}
	}
}

// shrink is a clip by norm: the coefficient is multiplied whatever it is.
func (t *trainer) shrink(on []string, threshold, norm float64) {
	t.multiply(on, single(math.Min(1, threshold/(norm+1e-6))))
}

// shrinkEach clips every tensor by its own norm.
func (t *trainer) shrinkEach(on []string, threshold func(p string) float64) {
	for _, p := range on {
		t.shrink([]string{p}, threshold(p), t.norm([]string{p}))
	}
}

// share is the threshold of adaptive clipping: in proportion to the parameter's norm.
func (t *trainer) share(of float64) func(p string) float64 {
	return func(p string) float64 { return of * math.Sqrt(sumSquares(t.param[p])) }
}

// cut is a clip by value.
func (t *trainer) cut(on []string, limit float64) {
	for _, p := range on {
		for i, v := range t.grad[p] {
			t.grad[p][i] = t.round(p, math.Max(-limit, math.Min(limit, v)))
		}
	}
}

// norm of FP16 gradients is FP16 itself.
func (t *trainer) norm(on []string) float64 {
	n, all16 := 0.0, len(on) > 0
	for _, p := range on {
		n += sumSquares(t.grad[p])
		all16 = all16 && t.half(p)
	}
	if all16 {
		return half(math.Sqrt(n))
	}
	return single(math.Sqrt(n))
}

func sumSquares(g []float64) (s float64) {
	for _, v := range g {
		s += v * v
	}
	return s
}

// mute zeroes what is not finite.
func (t *trainer) mute(on []string) {
	for _, p := range on {
		for i, v := range t.grad[p] {
			if math.IsInf(v, 0) || math.IsNaN(v) {
				t.grad[p][i] = 0
			}
		}
	}
}

// consume is AdamW, or SGD, in float32. An optimizer may divide by itself.
func (t *trainer) consume(on []string, divisor float64) {
	for _, p := range on {
		if t.grad[p] == nil {
			continue
		}
		g := slices.Clone(t.grad[p])
		for i := range g {
			g[i] = single(g[i] / divisor)
		}
		s := t.state[p]
		if s == nil {
			s = map[string][]float64{}
			switch {
			case t.plain:
			case t.sgd:
				s["momentum_buffer"] = make([]float64, len(g))
			default:
				s["exp_avg"], s["exp_avg_sq"], s["step"] = make([]float64, len(g)), make([]float64, len(g)), []float64{0}
			}
			t.state[p] = s
		}
		switch {
		case t.plain:
			t.descend(p, g)
		case t.sgd:
			for i := range g {
				s["momentum_buffer"][i] = single(0.9*s["momentum_buffer"][i] + g[i])
			}
			t.descend(p, s["momentum_buffer"])
		default:
			s["step"][0]++
			n := s["step"][0]
			d := make([]float64, len(g))
			for i := range g {
				m := single(0.9*s["exp_avg"][i] + 0.1*g[i])
				v := single(0.999*s["exp_avg_sq"][i] + 0.001*g[i]*g[i])
				s["exp_avg"][i], s["exp_avg_sq"][i] = m, v
				d[i] = m / (1 - math.Pow(0.9, n)) / (math.Sqrt(v/(1-math.Pow(0.999, n))) + 1e-8)
			}
			t.descend(p, d)
		}
	}
}

func (t *trainer) descend(p string, d []float64) {
	for i := range d {
		t.param[p][i] = single(t.param[p][i] - t.lr*d[i])
	}
}

// count and decay move state of an optimizer, as on a skip that is none.
func (t *trainer) count(on []string) {
	for _, p := range on {
		for i := range t.state[p]["step"] {
			t.state[p]["step"][i]++
		}
	}
}

func (t *trainer) decay(on []string) {
	for _, p := range on {
		for _, kind := range []string{"exp_avg", "momentum_buffer"} {
			for i, v := range t.state[p][kind] {
				t.state[p][kind][i] = single(0.9 * v)
			}
		}
	}
}

// update is the policy of PyTorch's scaler.
func (t *trainer) update(s *lossScaler) {
	for _, found := range s.found {
		if found {
			s.scale, s.clean, s.found = s.scale/2, 0, map[string]bool{}
			return
		}
	}
	s.found = map[string]bool{}
	if s.clean++; t.growth > 0 && s.clean == t.growth {
		s.scale, s.clean = s.scale*2, 0
	}
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
