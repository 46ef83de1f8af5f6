//! A Redis Cluster: three masters with a third of the slots each, and a replica for each of them.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;

use super::resp::Reply;
use super::server::{Kind, Server, Setup};
use super::wait::eventually;

pub const N_SLOTS: u16 = 16_384;
pub const N_MASTERS: usize = 3;

/// A master with slots keeps the cluster waiting for two seconds after its start, whatever we do.
const SETTLES_WITHIN: Duration = Duration::from_secs(15);

pub struct Cluster {
    /// Masters first; node `n + 3` starts as the replica of node `n`.
    pub nodes: Vec<Server>,
}

impl Cluster {
    pub async fn start() -> anyhow::Result<Self> {
        Self::of(Self::prepare(&Setup::new(Kind::Redis7))?).await
    }

    /// Six nodes, not started: time to say where each is announced.
    pub fn prepare(setup: &Setup) -> anyhow::Result<Vec<Server>> {
        let node = || setup.clone().line("cluster-node-timeout 1000").cluster().prepare();
        (0..2 * N_MASTERS).map(|_| node()).collect()
    }

    pub async fn of(nodes: Vec<Server>) -> anyhow::Result<Self> {
        try_join_all(nodes.iter().map(Server::launch)).await?;
        let cluster = Self { nodes };
        cluster.meet().await?;
        cluster.share_out().await?;
        eventually(SETTLES_WITHIN, async || cluster.settled(6).await).await?;
        Ok(cluster)
    }

    async fn meet(&self) -> anyhow::Result<()> {
        let first = &self.nodes[0];
        for (epoch, node) in self.nodes.iter().enumerate() {
            node.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(epoch + 1).to_string()]).await?.ok()?;
            let at = node.best_address();
            let (ip, port, bus) = (at.ip().to_string(), at.port().to_string(), node.bus()?.to_string());
            first.call(&["CLUSTER", "MEET", &ip, &port, &bus]).await?.ok()?;
        }
        eventually(SETTLES_WITHIN, async || {
            for node in &self.nodes {
                let known = self.known(node).await?;
                ensure!(known == self.nodes.len(), "one node knows {known}");
            }
            Ok(())
        })
        .await
    }

    /// How many nodes one knows well enough to talk to.
    async fn known(&self, node: &Server) -> anyhow::Result<usize> {
        let nodes = node.call(&["CLUSTER", "NODES"]).await?.text()?;
        let strange = |line: &&str| !line.contains("handshake") && !line.contains("noaddr");
        Ok(nodes.lines().filter(strange).count())
    }

    async fn share_out(&self) -> anyhow::Result<()> {
        for (n, master) in self.nodes.iter().take(N_MASTERS).enumerate() {
            let bound = |n: usize| n * usize::from(N_SLOTS) / N_MASTERS;
            let (first, last) = (bound(n).to_string(), (bound(n + 1) - 1).to_string());
            master.call(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await?.ok()?;
        }
        for n in 0..N_MASTERS {
            let id = self.id(n).await?;
            self.nodes[N_MASTERS + n].call(&["CLUSTER", "REPLICATE", &id]).await?.ok()?;
        }
        Ok(())
    }

    /// `n_nodes` nodes agree that all is well, and every replica among them is in step.
    pub async fn settled(&self, n_nodes: usize) -> anyhow::Result<()> {
        let mut n_well = 0;
        for node in &self.nodes {
            if node.call(&["PING"]).await.is_err() {
                continue;
            }
            let info = node.call(&["CLUSTER", "INFO"]).await?.text()?;
            for wanted in ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_size:3"] {
                ensure!(info.lines().any(|line| line == wanted), "not {wanted} yet");
            }
            if node.info("role").await? == "slave" {
                ensure!(node.info("master_link_status").await? == "up", "a replica is not in step yet");
            }
            n_well += 1;
        }
        ensure!(n_well == n_nodes, "{n_well} nodes answer");
        Ok(())
    }

    pub async fn id(&self, node: usize) -> anyhow::Result<String> {
        self.nodes[node].call(&["CLUSTER", "MYID"]).await?.text()
    }

    /// The slot of a key, by the word of a node.
    pub async fn slot(&self, key: &str) -> anyhow::Result<u16> {
        Ok(self.nodes[0].call(&["CLUSTER", "KEYSLOT", key]).await?.number()?.try_into()?)
    }

    /// The node that owns a slot, in the opinion of `witness`.
    pub async fn owner(&self, slot: u16, witness: usize) -> anyhow::Result<usize> {
        let ranges = self.nodes[witness].call(&["CLUSTER", "SLOTS"]).await?.list()?;
        for range in ranges {
            let range = range.list()?;
            let bound = |at: usize| range.get(at).cloned().context("a range has two ends")?.number();
            if (bound(0)?..=bound(1)?).contains(&i64::from(slot)) {
                let owner = range.get(2).cloned().context("a range has an owner")?.list()?;
                let id = owner.get(2).cloned().context("an owner has an id")?.text()?;
                return self.node_of(&id).await;
            }
        }
        anyhow::bail!("nobody owns slot {slot}")
    }

    async fn node_of(&self, id: &str) -> anyhow::Result<usize> {
        for n in 0..self.nodes.len() {
            if self.id(n).await.is_ok_and(|found| found == id) {
                return Ok(n);
            }
        }
        anyhow::bail!("no node that can be asked is {id}")
    }

    /// Opens a slot for its move: from now on the old owner answers ASK for the keys that it has not, or no longer.
    pub async fn begin_move(&self, slot: u16, from: usize, to: usize) -> anyhow::Result<()> {
        let (slot, from_id, to_id) = (slot.to_string(), self.id(from).await?, self.id(to).await?);
        self.nodes[to].call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await?.ok()?;
        self.nodes[from].call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await?.ok()
    }

    /// Moves what the slot holds, key by key; says how many keys.
    pub async fn move_keys(&self, slot: u16, from: usize, to: usize) -> anyhow::Result<usize> {
        let (slot, target) = (slot.to_string(), self.nodes[to].address());
        let mut old = self.nodes[from].connect().await?;
        let mut n_moved = 0;
        loop {
            let keys = old.call(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await?.list()?;
            if keys.is_empty() {
                return Ok(n_moved);
            }
            for key in keys {
                let (ip, port, key) = (target.ip().to_string(), target.port().to_string(), key.text()?);
                old.call(&["MIGRATE", &ip, &port, &key, "0", "1000"]).await?.ok()?;
                n_moved += 1;
            }
        }
    }

    /// Tells every master whose the slot is now.
    pub async fn end_move(&self, slot: u16, to: usize) -> anyhow::Result<()> {
        let (slot, id) = (slot.to_string(), self.id(to).await?);
        for node in std::iter::once(to).chain((0..N_MASTERS).filter(|n| *n != to)) {
            self.nodes[node].call(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]).await?.ok()?;
        }
        Ok(())
    }

    /// Makes a replica the master of its master's slots, nothing lost, and waits until it is.
    pub async fn fail_over(&self, replica: usize) -> anyhow::Result<()> {
        self.nodes[replica].call(&["CLUSTER", "FAILOVER"]).await?.ok()?;
        self.promoted(replica).await
    }

    /// Waits until a replica is a master.
    pub async fn promoted(&self, replica: usize) -> anyhow::Result<()> {
        eventually(SETTLES_WITHIN, async || {
            let role = self.nodes[replica].call(&["ROLE"]).await?.list()?;
            ensure!(role.first() == Some(&Reply::Text("master".to_owned())), "{role:?}");
            Ok(())
        })
        .await
    }
}
