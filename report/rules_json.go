package report

import (
	"io"

	"ordercheck/check"
)

// ruleJSON is a rule in the JSON form of `rules` and `explain`.
type ruleJSON struct {
	ID       string         `json:"id"`
	Severity check.Severity `json:"severity"`
	Title    string         `json:"title"`
	*ruleBody
}

// ruleBody is what only `explain` tells.
type ruleBody struct {
	Meaning  string       `json:"meaning"`
	Wrong    string       `json:"wrong"`
	Right    string       `json:"right"`
	Mend     []remedyJSON `json:"mend"`
	Needs    string       `json:"needs"`
	Explains []string     `json:"explains"`
	Sources  []string     `json:"sources"`
}

type remedyJSON struct {
	Framework string `json:"framework"`
	Text      string `json:"text"`
}

// RulesJSON writes {"version": 1, "rules": […]}: id, severity and title of each
// rule, and if whole is set all the rest of it.
func RulesJSON(w io.Writer, rules []check.Rule, whole bool) error {
	out := struct {
		Version int        `json:"version"`
		Rules   []ruleJSON `json:"rules"`
	}{Version: 1, Rules: make([]ruleJSON, len(rules))}
	for i, r := range rules {
		out.Rules[i] = ruleJSON{ID: r.ID, Severity: r.Severity, Title: r.Title}
		if !whole {
			continue
		}
		mend := make([]remedyJSON, len(r.Mend))
		for j, m := range r.Mend {
			mend[j] = remedyJSON(m)
		}
		out.Rules[i].ruleBody = &ruleBody{r.Meaning, r.Wrong, r.Right, mend, r.Needs, list(r.Explains), list(r.Sources)}
	}
	return writeJSON(w, out)
}
