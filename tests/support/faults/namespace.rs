//! A network namespace for one server, so that packets can really be lost: the server's machine, as it were, behind one cable.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, ensure};

/// The machine at the end of the cable. Needs root, as whoever lays cables does.
pub struct Namespace {
    name: String,
    /// Our end of the cable.
    link: String,
    ours: Ipv4Addr,
    theirs: Ipv4Addr,
    hardware: String,
}

/// Whether this process may make one.
pub fn may_lay_cables() -> bool {
    rustix::process::geteuid().is_root()
}

impl Namespace {
    pub fn create() -> anyhow::Result<Self> {
        static N_MADE: AtomicU32 = AtomicU32::new(0);
        let n = N_MADE.fetch_add(1, Ordering::Relaxed);
        let pid = process::id();
        // A network of two addresses for each, among those set aside for the tests of such devices (RFC 2544).
        let at = Ipv4Addr::from(
            u32::from(Ipv4Addr::new(198, 18, 0, 0)) + ((pid.wrapping_mul(4) + n) & 0x7fff) * 4,
        );
        let (ours, theirs) = (Ipv4Addr::from(u32::from(at) + 1), Ipv4Addr::from(u32::from(at) + 2));
        let name = format!("tidegate-{pid}-{n}");
        let link = format!("tg{pid}-{n}");
        ip(&["netns", "add", &name])?;
        let mut made = Self { name, link, ours, theirs, hardware: String::new() };
        made.lay_cable()?;
        Ok(made)
    }

    fn lay_cable(&mut self) -> anyhow::Result<()> {
        let (name, link) = (self.name.as_str(), self.link.as_str());
        ip(&["link", "add", link, "type", "veth", "peer", "name", "cable", "netns", name])?;
        ip(&["addr", "add", &format!("{}/30", self.ours), "dev", link])?;
        ip(&["link", "set", link, "up"])?;
        ip(&["-n", name, "addr", "add", &format!("{}/30", self.theirs), "dev", "cable"])?;
        ip(&["-n", name, "link", "set", "cable", "up"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        let shown = ip(&["-n", name, "-o", "link", "show", "cable"])?;
        let hardware = shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
        self.hardware = hardware.context("the cable has no hardware address")?.to_owned();
        self.heal()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> IpAddr {
        self.theirs.into()
    }

    /// From now on every packet to the server is lost, with no word to anybody: it goes to a hardware address that nobody has.
    pub fn lose_packets(&self) -> anyhow::Result<()> {
        self.send_to("02:00:00:00:00:01")
    }

    pub fn heal(&self) -> anyhow::Result<()> {
        self.send_to(&self.hardware)
    }

    fn send_to(&self, hardware: &str) -> anyhow::Result<()> {
        let theirs = self.theirs.to_string();
        ip(&["neigh", "replace", &theirs, "lladdr", hardware, "nud", "permanent", "dev", &self.link])
            .map(drop)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The cable goes with its end.
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("ip").args(arguments).output().context("cannot run ip, of iproute2")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {} said: {said}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
