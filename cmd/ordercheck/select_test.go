package main

import (
	"strings"
	"testing"

	"ordercheck/check"
)

func TestSelection(t *testing.T) {
	rules := []check.Rule{{ID: "OC0001"}, {ID: "OC1001"}, {ID: "OC1002"}, {ID: "OC2001"}, {ID: "OC6001"}}
	for _, c := range []struct{ spec, want string }{
		{"OC1001", "OC1001"},
		{"OC1", "OC1001 OC1002"},
		{"oc1, OC6", "OC1001 OC1002 OC6001"},
		{"-OC6", "OC0001 OC1001 OC1002 OC2001"},
		{"-OC1,OC1002", "OC0001 OC1002 OC2001 OC6001"},
		{"OC1,-OC1002", "OC1001"},
		{"OC,-OC1", "OC0001 OC2001 OC6001"},

		{"OC7", "error: --rules: no rule begins with OC7; ordercheck rules lists them"},
		{"OC1001,-OC101", "error: --rules: no rule begins with OC101; did you mean OC1001?"},
		{"OC1,", "error: --rules OC1,: an empty item; a list such as OC1001,-OC6 is wanted"},
		{"-", "error: --rules -: an empty item; a list such as OC1001,-OC6 is wanted"},
		{"OC1,-OC1", "error: --rules OC1,-OC1: leaves no rule"},
		{"-OC", "error: --rules -OC: leaves no rule"},
	} {
		selected, err := selection(c.spec, rules)
		var got string
		if err != nil {
			got = "error: " + err.Error()
		} else {
			var ids []string
			for _, r := range rules {
				if selected(r.ID) {
					ids = append(ids, r.ID)
				}
			}
			got = strings.Join(ids, " ")
		}
		if got != c.want {
			t.Errorf("--rules %s:\n got %s\nwant %s", c.spec, got, c.want)
		}
	}
	if all, err := selection("", rules); all != nil || err != nil {
		t.Errorf("no --rules: %v", err)
	}
}
