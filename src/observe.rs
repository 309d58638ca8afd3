//! Observability: metrics, and the target of its traces.
//!
//! Each part gets a recorder ([`Metrics`]) by value, so that several servers in one process (the
//! tests) count separately. The API decides who may read it; `telemetry` exports traces.

mod labels;
mod live;
mod metrics;
mod watch;

pub use live::{AuditNumbers, Connections, Gauges, Live, MemoryUse};
pub use metrics::{Metrics, Settled};
pub use watch::{ProviderWatch, RequestWatch};

/// The target of spans that are exported as traces and never appear in logs. Their fields
/// follow the semantic conventions of OpenTelemetry; none holds a prompt or a result.
pub const TRACES: &str = "gensvc::traces";
