//! Observability: metrics, and the target of its traces.
//!
//! Each part gets a recorder ([`Metrics`]) by value, so that several servers in one process (in
//! tests) count separately. The API decides who may read the metrics; `telemetry` exports traces.

mod live;
mod metrics;

use std::borrow::Cow;

pub use live::{AuditNumbers, Gauges, MemoryUse, PoolState, Unfinished};
pub use metrics::{Metrics, ProviderWatch, RequestWatch};

/// The target of spans that are exported as traces and never logged. Their fields follow the
/// semantic conventions of OpenTelemetry and contain no prompt or result.
pub const TRACES: &str = "gensvc::traces";

/// Names and values of labels. Values come from closed sets: the route table, the configuration,
/// the code. Values from requests never become labels, because each would create a series in
/// memory.
type Labels<const N: usize, V = Cow<'static, str>> = [(&'static str, V); N];
