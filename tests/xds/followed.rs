//! The client in this process, and what it tells.

use std::{path::Path, sync::Arc, time::Duration};

use tidegate::rules::{
    LoadOptions,
    xds::{Address, Event, Handle, Headers, Jitter, Keepalive, Node, Options, Schedule, Server, follow},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

use crate::control_plane::FAILED;

/// What was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The listing of the rules in force from now on.
    Rules(String),
    Refused(String),
    Trouble(String),
}

pub struct Followed {
    told: UnboundedReceiver<Told>,
    pub handle: Handle,
}

/// Quick to try again, slow to doubt a connection.
pub fn options(address: Address) -> Options {
    let keepalive = Keepalive { interval: FAILED, timeout: FAILED };
    Options {
        server: Server { address, tls: None, keepalive },
        node: Node { id: "test-node".to_owned(), ..Node::default() },
        headers: Headers::default(),
        max_message: 4 << 20,
        backoff: Schedule {
            initial: Duration::from_millis(20),
            max: Duration::from_millis(100),
            factor: 0.5,
            jitter: Jitter::Random,
        },
        cache_directory: None,
    }
}

/// The same, keeping snapshots there.
pub fn keeping(address: Address, directory: &Path) -> Options {
    Options { cache_directory: Some(directory.to_owned()), ..options(address) }
}

impl Followed {
    pub async fn start(options: Options) -> Self {
        Self::with(options, LoadOptions::default()).await
    }

    pub async fn with(options: Options, load: LoadOptions<'static>) -> Self {
        let (tell, told) = unbounded_channel();
        let listener = move |event| {
            let _ = match event {
                Event::Rules(Ok(loaded)) => tell.send(Told::Rules(loaded.rules.dump())),
                Event::Rules(Err(failure)) => tell.send(Told::Refused(failure.to_string())),
                Event::Trouble(why) => tell.send(Told::Trouble(why)),
                Event::Heard => Ok(()),
            };
        };
        Self { told, handle: follow(options, load, Arc::new(listener)).await }
    }

    pub async fn next(&mut self) -> Told {
        timeout(FAILED, self.told.recv()).await.expect("nothing more was told").unwrap()
    }

    /// The next rules; troubles on the way there do not matter.
    pub async fn rules(&mut self) -> String {
        loop {
            match self.next().await {
                Told::Rules(rules) => return rules,
                Told::Trouble(_) => {}
                Told::Refused(why) => panic!("refused: {why}"),
            }
        }
    }

    pub async fn refusal(&mut self) -> String {
        loop {
            match self.next().await {
                Told::Refused(why) => return why,
                Told::Trouble(_) => {}
                Told::Rules(rules) => panic!("taken: {rules}"),
            }
        }
    }

    pub async fn trouble(&mut self) -> String {
        match self.next().await {
            Told::Trouble(why) => why,
            told => panic!("{told:?}"),
        }
    }

    /// What was told and not taken yet, but for troubles.
    pub fn untaken(&mut self) -> Vec<Told> {
        std::iter::from_fn(|| self.told.try_recv().ok())
            .filter(|told| !matches!(told, Told::Trouble(_)))
            .collect()
    }
}

/// The listing of a domain's rule for the key `a`.
pub fn line(domain: &str, requests_per_unit: u32) -> String {
    format!(
        "{domain}.a: unit=HOUR requests_per_unit={requests_per_unit}, shadow_mode: false, quota_mode: false\n"
    )
}
