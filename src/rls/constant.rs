//! A decider that knows no rules: for tests of the edge, and to measure what the edge alone costs.

use smallvec::{SmallVec, smallvec};

use super::Decide;
use crate::{
    decision::{Answer, Code, Status},
    descriptor::Request,
    limiter::DecideError,
    store::Budget,
};

/// Lets everything through.
#[derive(Clone, Copy, Debug)]
pub struct LetsThrough;

impl Decide for LetsThrough {
    async fn decide(&self, request: &Request, _budget: Budget) -> Result<Answer, DecideError> {
        let status = Status { code: Code::Ok, limit: None, remaining: 0, reset_after: None };
        Ok(Answer {
            overall: Code::Ok,
            statuses: smallvec![status; request.descriptors.len()],
            headers: SmallVec::new(),
            dynamic_metadata: None,
        })
    }
}
