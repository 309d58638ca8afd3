//! Observability: metrics, and the target of its traces.
//!
//! Here: the recorder that parts receive by value ([`Metrics`]), so that several servers in
//! one process (the tests) do not count into each other. Not here: who may read it (the API),
//! where it is counted (each part), and the export of traces (`telemetry`).

mod labels;
mod live;
mod metrics;
mod watch;

pub use live::{AuditNumbers, Connections, Live, MemoryUse};
pub use metrics::{Metrics, Settled};
pub use watch::{ProviderWatch, RequestWatch};

/// The target of spans that are exported as traces and never appear in logs. Their fields
/// follow the semantic conventions of OpenTelemetry; none holds a prompt or a result.
pub const TRACES: &str = "gensvc::traces";
