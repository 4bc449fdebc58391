package main

import (
	"errors"
	"fmt"
	"strings"

	"ordercheck/check"
)

// selection turns the value of --rules into a predicate on rule ids. It is a
// list of prefixes, those with a minus in front leave rules out, and a later
// one overrules an earlier one. It starts from all rules if the first one leaves
// out, else from none. "" selects all, as nil.
func selection(spec string, rules []check.Rule) (func(id string) bool, error) {
	if spec == "" {
		return nil, nil
	}
	chosen := map[string]bool{}
	for i, item := range strings.Split(spec, ",") {
		prefix, out := strings.CutPrefix(strings.ToUpper(strings.TrimSpace(item)), "-")
		if prefix == "" {
			return nil, fmt.Errorf("--rules %s: an empty item; a list such as OC1001,-OC6 is wanted", spec)
		}
		known := false
		for _, r := range rules {
			if i == 0 {
				chosen[r.ID] = out
			}
			if strings.HasPrefix(r.ID, prefix) {
				chosen[r.ID] = !out
				known = true
			}
		}
		if !known {
			return nil, unknownRule("--rules: no rule begins with "+prefix, prefix, rules)
		}
	}
	for _, on := range chosen {
		if on {
			return func(id string) bool { return chosen[id] }, nil
		}
	}
	return nil, fmt.Errorf("--rules %s: leaves no rule", spec)
}

// unknownRule says what is wrong with an id, and which one may have been meant.
func unknownRule(what, id string, rules []check.Rule) error {
	var ids []string
	for _, r := range rules {
		ids = append(ids, r.ID)
	}
	if near := nearest(id, ids); near != "" {
		return errors.New(what + "; did you mean " + near + "?")
	}
	return errors.New(what + "; ordercheck rules lists them")
}
