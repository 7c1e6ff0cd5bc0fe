package transferotel

import (
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/mongotransfer/transfer"
)

// NewByClock is New with another clock.
func NewByClock(tracers trace.TracerProvider, meters metric.MeterProvider, now func() time.Time) (transfer.Observer, error) {
	return newByClock(tracers, meters, now)
}
