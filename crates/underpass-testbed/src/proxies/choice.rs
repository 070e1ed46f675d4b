//! Which proxies a comparison is about: flags that all comparisons of proxies have.

use std::path::PathBuf;

use clap::Args;

use super::Proxy;

/// The proxies that are here and wanted.
#[derive(Debug, Args)]
pub struct Choice {
    /// Our own program; left out: only the others are asked
    #[arg(long)]
    underpass: Option<PathBuf>,
    /// Left out: Envoy is not asked
    #[arg(long)]
    envoy: Option<PathBuf>,
    /// Ask only these
    #[arg(long, value_delimiter = ',')]
    only: Vec<Proxy>,
}

impl Choice {
    /// With the program of each.
    pub fn programs(&self) -> anyhow::Result<Vec<(Proxy, PathBuf)>> {
        let wanted = |proxy: &Proxy| self.only.is_empty() || self.only.contains(proxy);
        let found: Vec<_> =
            Proxy::ALL.into_iter().filter(wanted).filter_map(|proxy| Some((proxy, self.program(proxy)?))).collect();
        anyhow::ensure!(
            !found.is_empty(),
            "no proxy is here: name programs with --underpass and --envoy, or run scripts/peers"
        );
        Ok(found)
    }

    fn program(&self, proxy: Proxy) -> Option<PathBuf> {
        match proxy {
            Proxy::Underpass => self.underpass.clone(),
            Proxy::Envoy => self.envoy.clone(),
            Proxy::FedEnvoy => None,
            other => other.usual_program(),
        }
    }
}
