package main

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"ordercheck/check"
)

var rewrite = flag.Bool("rewrite", false, "write the expected output in testdata/script anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"ordercheck": main,
		"reported":   reported,
	})
}

// reported is ordercheck with an engine that finds what is written in the files
// it is given: reports in JSON form. Like the true engine it goes on after one
// that cannot be read.
func reported() {
	engine = func(paths []string, opt check.Options) (*check.Report, error) {
		var found *check.Report
		var failed error
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err == nil {
				found = new(check.Report)
				err = json.Unmarshal(text, found)
			}
			failed = errors.Join(failed, err)
		}
		return found, failed
	}
	main()
}

// TestScript runs testdata/script. Beside the usual commands there is
//
//	exits CODE COMMAND…
//
// which runs a command that must end with this exit code.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *rewrite,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0") // under -race every command would wait a second
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
