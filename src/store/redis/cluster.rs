//! A Redis Cluster: who serves which slot, and what to do when that changes.
//!
//! The `redis` crate's cluster connection takes no pipeline across slots and has one queue for all nodes; here each node has
//! a link of its own, a request goes to all its nodes at once, in one write each, and follows redirections by itself.
//!
//! **Invariant:** a charge is sent again only where a node said that it did not count it (MOVED, ASK, TRYAGAIN).

mod map;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use redis::Value;
use smallvec::SmallVec;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tracing::debug;

pub(super) use self::map::slot;
use self::map::{Range, SlotMap};
use super::{
    batch::{Members, Names, Request},
    clock::ShardClock,
    config::{Endpoint, Server},
    exchange::{Answer, Answers, Elsewhere, Manner, exchange},
    link::{Link, Target},
    probe_key,
    shared::Shared,
    stats::ErrorKind,
};
use crate::store::{Outcomes, StoreError};

/// Redirections that a charge follows. A failover or a moved slot takes one or two; more are a circle.
const MOST_REDIRECTIONS: u32 = 5;

/// Before a node is asked again that pointed at itself, or had half of the keys.
const PAUSE: Duration = Duration::from_millis(5);

/// The map is learned anew so often when nothing happens, and at most so often when much does.
const LEARN_EVERY: Duration = Duration::from_secs(10);
const LEARN_AT_MOST_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Cluster {
    known: Arc<Known>,
    learner: JoinHandle<()>,
}

/// What this worker knows of the cluster.
#[derive(Debug)]
struct Known {
    shared: Arc<Shared>,
    seeds: Vec<Server>,
    map: ArcSwap<SlotMap>,
    /// Something pointed to a change.
    changed: Notify,
    /// Whether the map was tried to be learned.
    tried: watch::Sender<bool>,
    /// Numbers the windows while no node is known.
    no_clock: ShardClock,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.learner.abort();
    }
}

impl Cluster {
    /// Starts to learn the map on this worker's runtime.
    pub fn open(shared: &Arc<Shared>, seeds: Vec<Server>) -> Self {
        let known = Arc::new(Known {
            shared: shared.clone(),
            seeds,
            map: ArcSwap::default(),
            changed: Notify::new(),
            tried: watch::Sender::new(false),
            no_clock: ShardClock::default(),
        });
        *shared.cluster_trouble.write() = Some("no node was asked yet".to_owned());
        Self { learner: tokio::spawn(known.clone().learn()), known }
    }

    pub async fn tried(&self, until: Instant) {
        let mut tried = self.known.tried.subscribe();
        // An error means that there is no map, which the caller finds out by itself.
        let _ = timeout_at(until, tried.wait_for(|tried| *tried)).await;
        let map = self.known.map.load_full();
        for link in map.links() {
            link.tried(until).await;
        }
    }

    /// Asks all nodes that the request needs at once, each in one write, and those that they point to.
    pub async fn run(&self, request: Request<'_>, deadline: Instant, outcomes: &mut Outcomes) {
        let map = self.known.map.load_full();
        let names = Names::of(request, map.clock().unwrap_or(&self.known.no_clock));
        let mut groups: SmallVec<[(Arc<Link>, Members); 4]> = SmallVec::new();
        for member in 0..request.charges.len() {
            let Some(link) = map.owner(slot(names.key(member))) else { continue };
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, link)) {
                Some((_, members)) => members.push(member),
                None => groups.push((link.clone(), Members::from_slice(&[member]))),
            }
        }
        let n_placed: usize = groups.iter().map(|(_, members)| members.len()).sum();
        let known = &self.known;
        let asked =
            groups.into_iter().map(|(link, members)| known.follow(request, &names, link, members, deadline));
        join_all(asked).await.into_iter().for_each(|answers| super::place(outcomes, answers));
        if n_placed < request.charges.len() || outcomes.contains(&Err(StoreError::Unavailable)) {
            self.known.changed.notify_one();
        }
    }

    /// The clock that windows are numbered by.
    pub fn with_clock<T>(&self, read: impl FnOnce(&ShardClock) -> T) -> T {
        read(self.known.map.load().clock().unwrap_or(&self.known.no_clock))
    }

    /// The charges of each slot.
    pub fn groups(&self, request: Request<'_>) -> Vec<Members> {
        let map = self.known.map.load_full();
        let names = Names::of(request, map.clock().unwrap_or(&self.known.no_clock));
        let mut groups: Vec<(u16, Members)> = Vec::new();
        for member in 0..request.charges.len() {
            let slot = slot(names.key(member));
            match groups.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, members)) => members.push(member),
                None => groups.push((slot, Members::from_slice(&[member]))),
            }
        }
        groups.into_iter().map(|(_, members)| members).collect()
    }
}

/// Who is asked next, for what, and how.
struct Next {
    link: Arc<Link>,
    members: Members,
    manner: Manner,
}

impl Known {
    /// Asks one node, and then the nodes that it points to. One answer for each member.
    async fn follow(
        &self,
        request: Request<'_>,
        names: &Names,
        link: Arc<Link>,
        members: Members,
        deadline: Instant,
    ) -> Answers {
        let mut answers = Answers::new();
        let mut round = vec![Next { link, members, manner: Manner::Plain }];
        for n_redirections in 0..=MOST_REDIRECTIONS {
            let mut next: Vec<Next> = Vec::new();
            for Next { link, members, manner } in round {
                if n_redirections > 0 {
                    link.tried(deadline).await;
                }
                for (member, answer) in exchange(&link, request, names, &members, manner, deadline).await {
                    match answer {
                        Answer::Elsewhere(to) if n_redirections < MOST_REDIRECTIONS => {
                            let (to, manner) = self.redirect(&link, slot(names.key(member)), to);
                            push(&mut next, to, member, manner);
                        }
                        Answer::Elsewhere(_) => {
                            link.shard.stats.error(ErrorKind::Redirect);
                            answers.push((member, Answer::Done(Err(StoreError::Unavailable))));
                        }
                        done @ Answer::Done(_) => answers.push((member, done)),
                    }
                }
                if next.iter().any(|next| Arc::ptr_eq(&next.link, &link)) {
                    sleep_until(deadline.min(Instant::now() + PAUSE)).await;
                }
            }
            if next.is_empty() {
                break;
            }
            round = next;
        }
        answers
    }

    /// The link to ask instead.
    fn redirect(&self, from: &Arc<Link>, slot: u16, to: Elsewhere) -> (Arc<Link>, Manner) {
        match to {
            Elsewhere::TryAgain => (from.clone(), Manner::Plain),
            Elsewhere::Ask(address) => (self.at(from, &address), Manner::Asking),
            Elsewhere::Moved(address) => {
                self.changed.notify_one();
                let link = self.at(from, &address);
                if Arc::ptr_eq(&link, from) {
                    // The name leads somewhere else now.
                    from.replace();
                } else {
                    self.map.rcu(|map| map.with(slot, link.clone()));
                }
                (link, Manner::Plain)
            }
        }
    }

    /// The link to this address; a new one if there is none.
    fn at(&self, from: &Arc<Link>, address: &str) -> Arc<Link> {
        let Some(endpoint) = map::endpoint(address, from.shard.name()) else { return from.clone() };
        let known = self.map.load().links().find(|link| link.shard.name() == endpoint.to_string()).cloned();
        known.unwrap_or_else(|| {
            let link = self.open(endpoint, probe_key(&self.shared.config.key_prefix));
            // Kept, so that the next charge that is pointed there finds it.
            self.map.rcu(|map| map.with_link(link.clone()));
            link
        })
    }

    fn open(&self, endpoint: Endpoint, probe_key: Vec<u8>) -> Arc<Link> {
        let seed = self.seeds.first();
        let server = Server {
            endpoint,
            auth: seed.and_then(|seed| seed.auth.clone()),
            db: 0,
            tls: seed.is_some_and(|seed| seed.tls),
        };
        let shard = self.shared.shard(&server.endpoint.to_string());
        Arc::new(Link::open(&self.shared, shard, Target::Fixed(server), probe_key))
    }

    /// Learns the map, again and again.
    async fn learn(self: Arc<Self>) {
        loop {
            match self.learn_once().await {
                Ok(ranges) => {
                    self.take_over(&ranges);
                    *self.shared.cluster_trouble.write() = None;
                }
                Err(why) => {
                    debug!(why, "the cluster's slots are not known");
                    *self.shared.cluster_trouble.write() = Some(why);
                }
            }
            self.tried.send_replace(true);
            sleep(LEARN_AT_MOST_EVERY.mul_f64(0.5 + self.shared.fraction())).await;
            let quiet = LEARN_EVERY.mul_f64(0.5 + self.shared.fraction() / 2.0);
            // Either way it is time.
            let _ = timeout(quiet, self.changed.notified()).await;
        }
    }

    /// Asks a node that is connected, from a random one on; else the seeds.
    async fn learn_once(&self) -> Result<Vec<Range>, String> {
        let map = self.map.load_full();
        let links: Vec<&Arc<Link>> = map.links().collect();
        let start = usize::try_from(self.shared.random()).unwrap_or(0) % links.len().max(1);
        let patience = self.shared.dialer.patience();
        for link in links.iter().cycle().skip(start).take(links.len()) {
            let Some((mut connection, _)) = link.connection() else { continue };
            let command = redis::cmd("CLUSTER").arg("SLOTS").take();
            if let Ok(Ok(reply)) = timeout(patience, connection.send_packed_command(&command)).await
                && let Ok(ranges) = ranges(&reply, link.shard.name())
            {
                return Ok(ranges);
            }
        }
        let mut complaints = Vec::new();
        for seed in &self.seeds {
            match self.ask_seed(seed, patience).await {
                Ok(ranges) => return Ok(ranges),
                Err(why) => complaints.push(format!("{}: {why}", seed.endpoint)),
            }
        }
        Err(complaints.join("; "))
    }

    async fn ask_seed(&self, seed: &Server, patience: Duration) -> Result<Vec<Range>, String> {
        let mut dialled = self.shared.dialer.dial(seed).await?;
        let command = redis::cmd("CLUSTER").arg("SLOTS").take();
        let reply = timeout(patience, dialled.connection.send_packed_command(&command))
            .await
            .map_err(|_| format!("silent for {patience:?}"))?
            .map_err(|_| "closed the connection".to_owned())?;
        ranges(&reply, &seed.endpoint.to_string())
    }

    /// Keeps the links to nodes that stay, opens those to nodes that are new, drops the others.
    fn take_over(&self, ranges: &[Range]) {
        let old = self.map.load_full();
        let new = SlotMap::of(ranges, |endpoint, owned| {
            let name = endpoint.to_string();
            let known = old.links().find(|link| link.shard.name() == name).cloned();
            known.unwrap_or_else(|| self.open(endpoint.clone(), self.probe_key(owned)))
        });
        drop(old);
        self.map.store(Arc::new(new));
        self.shared.drop_unused_shards();
    }

    /// A key that the node serves.
    fn probe_key(&self, owned: &[(u16, u16)]) -> Vec<u8> {
        let plain = probe_key(&self.shared.config.key_prefix);
        let keys = (0..1_000).map(|n| [plain.as_slice(), format!("|{n}").as_bytes()].concat());
        let serves = |key: &Vec<u8>| {
            let slot = slot(key);
            owned.iter().any(|(first, last)| (*first..=*last).contains(&slot))
        };
        keys.into_iter().find(serves).unwrap_or(plain)
    }
}

fn ranges(reply: &Value, asked: &str) -> Result<Vec<Range>, String> {
    match reply {
        Value::ServerError(error)
            if error.details().is_some_and(|text| text.contains("cluster support disabled")) =>
        {
            Err("this server is no node of a cluster: set REDIS_TYPE=single".to_owned())
        }
        Value::ServerError(error) => Err(format!("{} {}", error.code(), error.details().unwrap_or_default())),
        reply => match map::parse(reply, asked) {
            ranges if ranges.is_empty() => Err("it serves no slots".to_owned()),
            ranges => Ok(ranges),
        },
    }
}

fn push(next: &mut Vec<Next>, link: Arc<Link>, member: usize, manner: Manner) {
    let same = |next: &&mut Next| Arc::ptr_eq(&next.link, &link) && next.manner == manner;
    match next.iter_mut().find(same) {
        Some(next) => next.members.push(member),
        None => next.push(Next { link, members: Members::from_slice(&[member]), manner }),
    }
}
