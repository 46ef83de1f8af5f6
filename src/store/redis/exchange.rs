//! One batch with one server: leave from the breaker, one write, one reply, and what that means for each charge.

use redis::Value;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    batch::{Batch, Members, Names, Outcome, Request},
    breaker::Permit,
    link::Link,
    reply::Said,
    script::Source,
    stats::ErrorKind,
};
use crate::{clock::UnixMicros, limit::Charged, store::StoreError};

/// What came of one charge at one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done(Result<Charged, StoreError>),
    /// Nothing was counted: another node of the cluster is to be asked.
    Elsewhere(Elsewhere),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    Moved(String),
    Ask(String),
    TryAgain,
}

/// Index of the charge, and its answer.
pub(super) type Answers = SmallVec<[(usize, Answer); 8]>;

/// How the server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Plain,
    /// Each command after `ASKING`: the slot is on its way to this node.
    Asking,
}

/// Asks one server for these members of the request. One answer for each.
///
/// Bound: returns at `deadline`.
pub(super) async fn exchange(
    link: &Link,
    request: Request<'_>,
    names: &Names,
    members: &[usize],
    manner: Manner,
    deadline: Instant,
) -> Answers {
    let began = Instant::now();
    if began >= deadline {
        return all(link, members, ErrorKind::Timeout);
    }
    let permit = link.shard.breaker.permit(began);
    if permit == Permit::Stop {
        return all(link, members, ErrorKind::Open);
    }
    let Some((mut connection, abilities)) = link.connection() else {
        settle_probe(link, permit);
        return all(link, members, ErrorKind::Io);
    };
    let batch = Batch::new(request, members, names, abilities);
    let mut tally = Tally::default();
    let mut again = Members::new();
    if batch.is_empty() {
        settle_probe(link, permit);
        return all(link, members, ErrorKind::Denied);
    }
    let pipeline = batch.pipeline(Source::Digest, manner);
    let mut answers = match link.send(&mut connection, &pipeline, deadline).await {
        Ok(replies) => tally.take(&batch, replies, manner, Some(&mut again)),
        Err(kind) => {
            settle_probe(link, permit);
            return all(link, members, kind);
        }
    };
    if !again.is_empty() {
        // The server forgot the script, and has counted nothing of it. Boxed: it is seldom, and every call would be moved
        // about with room for it.
        let batch = Batch::new(request, &again, names, abilities);
        let whole = async {
            match link.send(&mut connection, &batch.pipeline(Source::Whole, manner), deadline).await {
                Ok(replies) => tally.take(&batch, replies, manner, None),
                Err(kind) => all(link, &again, kind),
            }
        };
        answers.extend(Box::pin(whole).await);
    }
    tally.tell(link, request);
    answers
}

/// A probe that found nothing out has failed.
fn settle_probe(link: &Link, permit: Permit) {
    if permit == Permit::Probe {
        link.shard.failed(ErrorKind::Io);
    }
}

fn all(link: &Link, members: &[usize], kind: ErrorKind) -> Answers {
    let error =
        if kind == ErrorKind::Timeout { StoreError::DeadlineExceeded } else { StoreError::Unavailable };
    members
        .iter()
        .map(|&member| {
            link.shard.stats.error(kind);
            (member, Answer::Done(Err(error)))
        })
        .collect()
}

/// What the replies of a batch say about the server.
#[derive(Debug, Default)]
struct Tally {
    errors: SmallVec<[ErrorKind; 4]>,
    read_only: bool,
    /// What the server's clock showed.
    reading: Option<UnixMicros>,
}

impl Tally {
    fn take(
        &mut self,
        batch: &Batch<'_>,
        mut replies: Vec<Value>,
        manner: Manner,
        mut again: Option<&mut Members>,
    ) -> Answers {
        if manner == Manner::Asking {
            let mut nth = 0;
            // Every other reply is ASKING's.
            replies.retain(|_| {
                nth += 1;
                nth % 2 == 0
            });
        }
        let mut answers = Answers::new();
        let reading = batch.outcomes(replies, |member, outcome| {
            let said = match outcome {
                Outcome::Charged(charged) => {
                    answers.push((member, Answer::Done(Ok(charged))));
                    return;
                }
                Outcome::Said(Said::NoScript) => match again.as_deref_mut() {
                    Some(again) => {
                        again.push(member);
                        return;
                    }
                    None => Said::Other,
                },
                Outcome::Said(said) => said,
            };
            answers.push((member, self.answer(said)));
        });
        self.reading = self.reading.or(reading);
        answers
    }

    fn answer(&mut self, said: Said) -> Answer {
        let kind = match said {
            Said::Moved(to) => return Answer::Elsewhere(Elsewhere::Moved(to)),
            Said::Ask(to) => return Answer::Elsewhere(Elsewhere::Ask(to)),
            Said::TryAgain => return Answer::Elsewhere(Elsewhere::TryAgain),
            Said::ReadOnly => {
                self.read_only = true;
                ErrorKind::State
            }
            Said::State => ErrorKind::State,
            Said::Denied => ErrorKind::Denied,
            Said::WrongType => ErrorKind::WrongType,
            Said::NoScript | Said::Overflow | Said::Other => ErrorKind::Other,
        };
        self.errors.push(kind);
        Answer::Done(Err(StoreError::Unavailable))
    }

    fn tell(&self, link: &Link, request: Request<'_>) {
        if let Some(reading) = self.reading {
            let round_trip = request.now.until(request.clock.now());
            link.shard.clock.sample(request.now, round_trip, reading);
        }
        self.errors.iter().for_each(|kind| link.shard.stats.error(*kind));
        if self.errors.contains(&ErrorKind::State) {
            link.shard.failed(ErrorKind::State);
        } else {
            link.shard.answered();
        }
        if self.read_only {
            link.replace();
        }
    }
}
