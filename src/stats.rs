//! The statistics that the reference keeps, under its names: collected from the counters that there are anyway, and shown or
//! sent in the background. A call pays for none of it, but for the names that it brings itself.
//!
//! Knows the limiter, the counters and the stores, to read them; decides nothing, and answers nobody by itself.
//!
//! **Invariant:** a receiver that is away, slow or gone costs no call anything, and no memory that grows.

mod collect;
mod dogstatsd;
mod lines;
mod mapper;
mod name;
mod names;
mod page;
mod prometheus;
mod sender;
mod template;

pub use self::{
    collect::Statistics,
    dogstatsd::Mogrifier,
    mapper::{Mapper, MapperError},
    names::{MAX_NAMES, Names, OTHER},
    prometheus::CONTENT_TYPE,
    sender::{Protocol, Sender, Target},
};

/// How Prometheus is shown statistics.
#[derive(Clone, Debug)]
pub struct Exposition {
    pub mapper: Mapper,
    /// Labels of every series.
    pub tags: Vec<(String, String)>,
}

impl Statistics {
    /// A line for each statistic, sorted: `name: value`.
    pub fn text(&self) -> String {
        page::text(&self.collect())
    }

    /// One JSON object: values by name.
    pub fn json(&self) -> String {
        page::json(&self.collect())
    }

    /// The page that Prometheus reads. Takes some microseconds for each series: not to be called where calls are answered.
    pub fn prometheus(&self, exposition: &Exposition) -> String {
        prometheus::page(&self.collect(), &exposition.mapper, &exposition.tags)
    }
}

#[cfg(test)]
mod tests;
