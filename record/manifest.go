package record

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Manifest is recording.json: what the recorder read from the objects. All but
// format and version may be missing.
type Manifest struct {
	Format     string               `json:"format"`
	Version    int                  `json:"version"`
	WorldSize  int                  `json:"world_size,omitempty"`
	Source     Source               `json:"source,omitzero"`
	Precision  Precision            `json:"precision,omitzero"`
	Scalers    map[string]Scaler    `json:"scalers,omitempty"`
	Optimizers map[string]Optimizer `json:"optimizers,omitempty"`
	Parameters map[string]Parameter `json:"parameters,omitempty"`
	Declared   Declared             `json:"declared,omitzero"`

	// PrecisionGiven: the recorder says what autocast was, if only that there was none.
	PrecisionGiven bool `json:"-"`
}

// Source is the framework and the script that were recorded.
type Source struct {
	Framework string `json:"framework,omitempty"`
	Version   string `json:"version,omitempty"`
	Script    string `json:"script,omitempty"`
}

// Precision is the autocast dtype; nil or empty: none.
type Precision struct {
	Autocast *string `json:"autocast"`
}

// Scaler is a loss scaler and its policy. Enabled false: switched off.
type Scaler struct {
	Policy         string  `json:"policy,omitempty"`
	Enabled        *bool   `json:"enabled,omitempty"`
	InitScale      Number  `json:"init_scale,omitempty"`
	GrowthFactor   Number  `json:"growth_factor,omitempty"`
	BackoffFactor  Number  `json:"backoff_factor,omitempty"`
	GrowthInterval float64 `json:"growth_interval,omitempty"`
}

// Optimizer owns parameters: Params on every rank, or ParamsByRank.
type Optimizer struct {
	Name         string              `json:"name,omitempty"`
	Params       []string            `json:"params,omitempty"`
	ParamsByRank map[string][]string `json:"params_by_rank,omitempty"`
	Continues    *string             `json:"continues,omitempty"` // the optimizer that it replaces after a resume
	Settings     Settings            `json:"settings,omitzero"`
}

// Settings are the hyper-parameters that the checker uses; others are passed over.
type Settings struct {
	LR          *Number  `json:"lr,omitempty"`
	Betas       []Number `json:"betas,omitempty"`
	Momentum    *Number  `json:"momentum,omitempty"`
	Dampening   *Number  `json:"dampening,omitempty"`
	Eps         *Number  `json:"eps,omitempty"`
	WeightDecay *Number  `json:"weight_decay,omitempty"`
}

// Parameter names its float32 copy (Master) and the parameter it is tied to (SameAs).
type Parameter struct {
	DType  string  `json:"dtype,omitempty"`
	Shape  []int   `json:"shape,omitempty"`
	Master *string `json:"master,omitempty"`
	SameAs *string `json:"same_as,omitempty"`
}

// Declared is what the author intends.
type Declared struct {
	Clip         *DeclaredClip `json:"clip,omitempty"`
	Accumulation int           `json:"accumulation,omitempty"` // micro-batches
	Schedule     string        `json:"schedule,omitempty"`     // "per_update"
}

// DeclaredClip is a threshold in the unit of true gradients.
type DeclaredClip struct {
	Rule     string   `json:"rule,omitempty"`
	MaxNorm  *Number  `json:"max_norm,omitempty"`
	NormType *Number  `json:"norm_type,omitempty"`
	Eps      *Number  `json:"eps,omitempty"`
	Covers   []string `json:"covers,omitempty"`
}

const (
	formatName    = "ordercheck-recording"
	formatVersion = 1
	manifestName  = "recording.json"
)

func parseManifest(data []byte) (Manifest, error) {
	var m Manifest
	if !json.Valid(data) {
		data = quoteNonFinite(data) // so that the place of an error is one in data
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, at(manifestName, data, err)
	}
	var has struct {
		Precision json.RawMessage `json:"precision"`
	}
	_ = unmarshal(data, &has) // it has been read once
	m.PrecisionGiven = len(has.Precision) > 0 && string(has.Precision) != "null"
	switch {
	case m.Format != formatName:
		return m, fmt.Errorf(`%s: "format" is %q, not %q: this is no recording`, manifestName, m.Format, formatName)
	case m.Version != formatVersion:
		return m, fmt.Errorf(`%s: "version" is %d; this program reads version %d: record again with a matching recorder`, manifestName, m.Version, formatVersion)
	case m.WorldSize < 0:
		return m, fmt.Errorf(`%s: "world_size" is %d; it counts ranks`, manifestName, m.WorldSize)
	}
	return m, nil
}

// at adds file and line to an error of encoding/json.
func at(file string, data []byte, err error) error {
	var offset int64 = -1
	switch e := err.(type) {
	case *json.SyntaxError:
		offset = e.Offset
	case *json.UnmarshalTypeError:
		offset = e.Offset
		if err = fmt.Errorf("a JSON %s stands where none is expected", e.Value); e.Field != "" {
			err = fmt.Errorf("field %q: %w", e.Field, err)
		}
	}
	if offset < 0 || offset > int64(len(data)) {
		return fmt.Errorf("%s: %w", file, err)
	}
	return fmt.Errorf("%s:%d: %w", file, 1+bytes.Count(data[:offset], []byte("\n")), err)
}
