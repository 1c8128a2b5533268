//! Arguments of a host whose ranks can be on several hosts.

use std::net::IpAddr;

use clap::Args;
use saggar_jobs::RankPorts;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RankNetworkArgs {
    /// The address at which other hosts reach this one, for jobs with several hosts [default: the address from which it
    /// reaches the database].
    #[arg(long, env = "SAGGAR_ADVERTISE", value_name = "ADDRESS")]
    pub(crate) advertise: Option<IpAddr>,
    /// The ports for jobs with several hosts: 20000-20099. Each such job that this host leads needs one while it starts
    /// [default: any free port].
    #[arg(long, env = "SAGGAR_RANK_PORTS", value_name = "PORTS")]
    pub(crate) rank_ports: Option<RankPorts>,
}
