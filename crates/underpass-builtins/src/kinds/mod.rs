//! The kinds, one file each: what it is called, its columns, its defaults, its checks.

mod config_map;
pub(crate) mod custom_resource_definition;
mod deployment;
mod endpoint_slice;
pub(crate) mod event;
mod lease;
mod namespace;
mod node;
mod pod;
mod pod_template;
mod review;
mod secret;
mod service;
mod service_account;

pub use review::reviews;

use crate::Builtin;

/// Every kind that is stored.
pub fn all() -> &'static [Builtin] {
    static ALL: [Builtin; 14] = [
        config_map::builtin(),
        event::core(),
        namespace::builtin(),
        node::builtin(),
        pod_template::builtin(),
        pod::builtin(),
        secret::builtin(),
        service_account::builtin(),
        service::builtin(),
        custom_resource_definition::builtin(),
        deployment::builtin(),
        lease::builtin(),
        endpoint_slice::builtin(),
        event::events(),
    ];
    &ALL
}
