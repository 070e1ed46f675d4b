//! A machine on the lab's tenant network, as VMs are: it has one link and one address there, and no way to anywhere else.
//!
//! It is a network namespace and not a VM, because the network is all of it that anybody else can see.

use std::path::Path;
use std::process::Command;

use crate::lab::Lab;
use crate::process::{Ended, Process};
use crate::unique::unique;

/// How long one fetch may take; who waits for an answer asks again.
const FETCH_SECONDS: u32 = 5;

/// It goes with this value, whatever still runs on it.
pub struct Machine {
    lab: Lab,
    name: String,
}

impl Lab {
    /// One with this address, such as `192.168.100.50/24`. All machines are on one segment: tests that run side by side choose subnets of
    /// their own.
    #[track_caller]
    pub fn machine(&self, address: &str) -> Machine {
        let name = unique("vm");
        self.script(&["vm", "add", &name, address]).ok();
        Machine { lab: self.clone(), name }
    }
}

impl Machine {
    /// Runs a shell in its network. Files are those of the test.
    #[track_caller]
    pub fn run(&self, script: &str) -> Ended {
        self.start(script).wait()
    }

    /// Leaves it running; it does not outlive its value.
    pub fn start(&self, script: &str) -> Process {
        Process::start(&mut self.command(script))
    }

    pub(crate) fn command(&self, script: &str) -> Command {
        self.lab.command(&["vm", "run", &self.name, "sh", "-euc", script])
    }

    /// Its own on its network, as others see it.
    pub fn mac(&self) -> String {
        let link = self.run("ip -o link show dev eth0").ok();
        let mut words = link.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).unwrap_or_else(|| panic!("no address in: {link}")).to_owned()
    }

    /// What curl gets when `at` (an address, without a port) is taken for whatever host the URL names, as if DNS had said so. A server must
    /// have a certificate of that authority.
    #[track_caller]
    pub fn fetch(&self, url: &str, at: &str, authority: &Path) -> Ended {
        self.curl(&format!("--max-time {FETCH_SECONDS}"), url, at, authority).wait()
    }

    /// The same of something without an end; its stdout is what came so far.
    pub fn follow(&self, url: &str, at: &str, authority: &Path) -> Process {
        self.curl("--no-buffer", url, at, authority)
    }

    fn curl(&self, how: &str, url: &str, at: &str, authority: &Path) -> Process {
        let who = format!("--cacert '{}' --connect-to '::{at}:'", authority.display());
        self.start(&format!("exec curl --silent --show-error --fail --noproxy '*' {how} {who} '{url}'"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.lab.script(&["vm", "remove", &self.name]);
    }
}
