package evidence

import (
	"testing"

	"ordercheck/step"
)

// What was seen between two lines, each time it was looked, and what is taken to
// happen there where nobody looked.
func TestHabits(t *testing.T) {
	a, b := step.SetOf(0), step.SetOf(1)
	divide, divideOther := act{kind: unscaled, on: a}, act{kind: unscaled, on: b}
	clip, zero := act{kind: shrunk, on: a, factor: 0.25}, act{kind: zeroed, on: a}
	here := site{"backward train.py:10 ", "step train.py:12 0"}
	for _, c := range []struct {
		name string
		seen [][]act
		want []act
		how  regularity
	}{
		{"never looked", nil, nil, never},
		{"nothing, each time", [][]act{nil, {}, nil}, nil, always},
		{"once", [][]act{{divide}}, []act{divide}, always},
		{"the same each time", [][]act{{divide}, {divide}}, []act{divide}, always},
		{"of other parameters", [][]act{{divide}, {divideOther}}, nil, varies},
		{"another number of times", [][]act{{divide}, {divide, divide}}, nil, varies},
		{"not each time", [][]act{{divide}, nil}, nil, varies},
		{"in another order", [][]act{{divide, zero}, {zero, divide}}, nil, varies},
		{"clipped each time", [][]act{{divide, clip}, {divide, clip}}, []act{divide, clip}, always},
		{"clipped by another factor", [][]act{{divide, clip}, {divide, {kind: shrunk, on: a, factor: 0.5}}}, []act{divide, clip}, always},
		{"clipped at times", [][]act{{divide, clip}, {divide}}, []act{divide}, always},
		{"clipped at times, and nothing else", [][]act{nil, {clip}, nil}, nil, always},
		{"clipped at times, divided at times", [][]act{{divide, clip}, nil}, nil, varies},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHabits()
			for _, acts := range c.seen {
				h.saw(here, acts)
			}
			if _, how := h.at(site{"anything", "else"}); how != always {
				t.Errorf("while learning: %d", how)
			}
			h.settle()
			acts, how := h.at(here)
			if describe(acts) != describe(c.want) || how != c.how {
				t.Errorf("%d: %s, want %d: %s", how, describe(acts), c.how, describe(c.want))
			}
			h.saw(here, []act{zero}) // too late
			if again, _ := h.at(here); describe(again) != describe(acts) {
				t.Errorf("learnt something after it was settled: %s", describe(again))
			}
		})
	}
}

// A change that was seen on one side of a place makes it doubtful; where nothing
// was ever seen to happen it is only not known.
func TestHabitsOfNeighbours(t *testing.T) {
	divide := act{kind: unscaled, on: step.SetOf(0)}
	for _, c := range []struct {
		name string
		seen [][]act
		how  regularity
	}{
		{"nothing happens beside", [][]act{nil, nil}, never},
		{"something happens beside", [][]act{{divide}, {divide}}, varies},
		{"something may happen beside", [][]act{{divide}, nil}, varies},
	} {
		for _, place := range []site{{"p", "x"}, {"x", "n"}, {"x", "y"}} {
			h := newHabits()
			for _, acts := range c.seen {
				h.saw(site{"p", "n"}, acts)
			}
			h.settle()
			want := c.how
			if place == (site{"x", "y"}) {
				want = never
			}
			if acts, how := h.at(place); how != want || acts != nil {
				t.Errorf("%s, at %v: %d, %s", c.name, place, how, describe(acts))
			}
		}
	}
}

// The mark of a clip inside a backward counts if every look at its line showed
// it, and there were two.
func TestHabitsOfHooks(t *testing.T) {
	for _, c := range []struct {
		marks []bool
		want  bool
	}{
		{nil, false}, {[]bool{true}, false}, {[]bool{true, true}, true}, {[]bool{true, true, false}, false}, {[]bool{false, false}, false},
	} {
		h := newHabits()
		for _, m := range c.marks {
			h.sawHook("line", m)
		}
		if h.hooked("line") {
			t.Errorf("%v: hooked while learning", c.marks)
		}
		h.settle()
		h.sawHook("line", true)
		if got := h.hooked("line"); got != c.want || h.hooked("other line") {
			t.Errorf("%v: hooked = %v", c.marks, got)
		}
	}
}
