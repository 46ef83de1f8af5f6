//! What the process tells about itself: logs, metrics, traces.

#[cfg(test)]
pub(crate) mod lines;
pub mod logs;
pub mod metrics;
pub mod timing;
pub mod traces;
pub(crate) mod trouble;
