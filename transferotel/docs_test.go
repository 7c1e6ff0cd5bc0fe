package transferotel_test

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.yaml.in/yaml/v3"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transferotel"
)

// series are the labels of a Prometheus metric, and their values.
type series map[string]map[string]bool

// exported returns all metrics as Prometheus has them, after everything has happened that
// an observer is told.
func exported(t *testing.T) map[string]series {
	t.Helper()
	l := &lab{t: t, reader: metric.NewManualReader()}
	o, err := transferotel.New(nil, metric.NewMeterProvider(metric.WithReader(l.reader)))
	require.NoError(t, err)
	for _, outcome := range []transfer.Outcome{transfer.Moved, transfer.NothingStored, transfer.Failed, transfer.InDoubt, transfer.Unchanged} {
		ctx := o.TransferStarted(t.Context(), transfer.TransferStart{ID: "t", Verb: "transfer"})
		o.TransferDone(transfer.TransferInfo{Context: ctx, ID: "t", Verb: "transfer", Outcome: outcome})
	}
	o.CommandDone(transfer.CommandInfo{Verb: "claim", Operations: 1})
	o.TakenOver(transfer.TakeoverInfo{Context: t.Context(), Verb: "recover"})
	o.Counted(transfer.Stats{Oldest: time.Now()})
	failure := errors.New("refused")
	for _, info := range []transfer.EventInfo{{Kind: "held"}, {Kind: "held", Err: failure}, {Kind: "held", Err: failure, GivenUp: true}} {
		o.EventDone(info)
	}
	all := map[string]series{}
	for _, m := range l.metrics() {
		labels := series{}
		for attributes := range points(m) {
			for pair := range strings.SplitSeq(attributes, ",") {
				if key, value, ok := strings.Cut(pair, "="); ok {
					if labels[key] == nil {
						labels[key] = map[string]bool{}
					}
					labels[key][value] = true
				}
			}
		}
		for _, name := range prometheusNames(m) {
			all[name] = labels
		}
	}
	return all
}

// prometheusNames returns the names that a metric has in Prometheus: dots become
// underscores, seconds are named, a unit in braces is left out, a counter ends in _total,
// and a histogram is three metrics.
func prometheusNames(m metricdata.Metrics) []string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		if data.IsMonotonic {
			name += "_total"
		}
	case metricdata.Histogram[int64], metricdata.Histogram[float64]:
		return []string{name + "_bucket", name + "_sum", name + "_count"}
	}
	return []string{name}
}

// unknownIn returns what an expression names and nobody exports: a metric, a label or a
// value of one.
func unknownIn(expression string, all map[string]series) (unknown []string) {
	labels := map[string]bool{"le": true}
	metrics := regexp.MustCompile(`\b(transfer_[a-z_]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(expression, -1)
	if len(metrics) == 0 {
		return []string{"no metric: " + expression}
	}
	for _, found := range metrics {
		labelled, exists := all[found[1]]
		if !exists {
			unknown = append(unknown, found[1])
		}
		for label := range labelled {
			labels[label] = true
		}
		for _, matcher := range regexp.MustCompile(`(\w+)\s*=~?\s*"([^"]*)"`).FindAllStringSubmatch(found[2], -1) {
			if !labelled[matcher[1]][matcher[2]] {
				unknown = append(unknown, found[1]+"{"+matcher[0]+"}")
			}
		}
	}
	for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			if !labels[strings.TrimSpace(label)] {
				unknown = append(unknown, by[0])
			}
		}
	}
	return unknown
}

// alert is a rule for Prometheus.
type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

// alerts returns the rules of the documents.
func alerts(t *testing.T) []alert {
	t.Helper()
	text, err := os.ReadFile("../docs/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct{ Rules []alert }
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.Len(t, file.Groups, 1)
	require.Greater(t, len(file.Groups[0].Rules), 5)
	return file.Groups[0].Rules
}

// Every metric, label and value that an alert names exists, and each alert says what has
// happened and what to do.
func TestAlertsNameWhatExists(t *testing.T) {
	t.Parallel()
	all := exported(t)
	for _, rule := range alerts(t) {
		assert.Empty(t, unknownIn(rule.Expr, all), rule.Alert)
		assert.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		if rule.For != "" {
			_, err := time.ParseDuration(rule.For)
			assert.NoError(t, err, rule.Alert)
		}
	}
}

// An alert by what a counter has gained fires for the first that is counted, too.
// The counter is not exported before that, and then increase returns 0 of it.
func TestAlertsSeeTheFirst(t *testing.T) {
	t.Parallel()
	gains := regexp.MustCompile(`increase\((transfer_\w+(?:\{[^}]*\})?)\[(\w+)\]\)`)
	seen := 0
	for _, rule := range alerts(t) {
		for _, gain := range gains.FindAllStringSubmatch(rule.Expr, -1) {
			seen++
			assert.Contains(t, rule.Expr, "("+gain[1]+" unless "+gain[1]+" offset "+gain[2]+") or "+gain[0], rule.Alert)
		}
	}
	require.Equal(t, 2, seen)
}

// Every metric, label and value that the dashboard names exists, and it shows each
// metric.
func TestDashboardNamesWhatExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	all := exported(t)
	shown := ""
	for _, panel := range dashboard.Panels {
		assert.NotEmpty(t, panel.Description, panel.Title)
		assert.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			assert.Empty(t, unknownIn(target.Expr, all), panel.Title)
			shown += target.Expr
		}
	}
	for name := range all {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		assert.Contains(t, shown, base)
	}
}

// The tests find a metric, a label and a value that don't exist.
func TestUnknownNamesAreFound(t *testing.T) {
	t.Parallel()
	all := exported(t)
	require.Empty(t, unknownIn(`sum by (le) (transfer_duration_seconds_bucket{outcome="InDoubt"})`, all))
	for _, expression := range []string{
		`transfer_duration_bucket`, `transfer_takeovers`, `transfer_unfinished{state="lost"}`, `transfer_in_flight{outcome="Moved"}`,
		`sum by (account) (transfer_in_flight)`, `up == 0`, `transfer_unfinished_age`,
	} {
		assert.NotEmpty(t, unknownIn(expression, all), expression)
	}
}
