//! The secondary network that a pod joins through Multus.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::name::{AttachmentReference, Label};
use crate::rules::same_if_both;

/// Which NetworkAttachmentDefinition; part of `networkConfig` of every kind whose pod stands on a secondary network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = same_if_both("networkAttachmentName", "nadName"),
    validation = same_if_both("networkAttachmentNamespace", "nadNamespace")
)]
pub struct NetworkAttachment {
    /// Name of the Multus NetworkAttachmentDefinition that leads to the secondary network, for example tenant-vlan-100. Also taken:
    /// namespace/name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_attachment_name: Option<AttachmentReference>,

    /// Namespace of the NetworkAttachmentDefinition. Left out: the namespace of this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_attachment_namespace: Option<Label>,

    /// Deprecated name of networkAttachmentName. If both are written they must be equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nad_name: Option<AttachmentReference>,

    /// Deprecated name of networkAttachmentNamespace. If both are written they must be equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nad_namespace: Option<Label>,
}

/// A NetworkAttachmentDefinition, fully named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedAttachment {
    pub namespace: String,
    pub name: String,
}

impl NetworkAttachment {
    /// The definition that is meant, or `None` when no secondary network is asked for.
    pub fn resolve(&self, own_namespace: &str) -> Option<ResolvedAttachment> {
        let reference = self.network_attachment_name.as_ref().or(self.nad_name.as_ref())?;
        let namespace = self.network_attachment_namespace.as_ref().or(self.nad_namespace.as_ref());
        Some(resolve(reference, namespace, own_namespace))
    }
}

/// An explicit namespace wins over one inside the reference, which wins over the object's own.
pub(crate) fn resolve(reference: &str, namespace: Option<&Label>, own_namespace: &str) -> ResolvedAttachment {
    let (inner, name) = reference.split_once('/').map_or((None, reference), |(inner, name)| (Some(inner), name));
    let namespace = namespace.map(|label| &**label).or(inner).unwrap_or(own_namespace);
    ResolvedAttachment { namespace: namespace.to_owned(), name: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alias_and_the_own_namespace_fill_in() {
        let mut attachment = NetworkAttachment { nad_name: Some("vlan".into()), ..NetworkAttachment::default() };
        let resolved = |a: &NetworkAttachment| a.resolve("own").map(|r| (r.namespace, r.name));
        assert_eq!(resolved(&attachment), Some(("own".to_owned(), "vlan".to_owned())));
        attachment.network_attachment_name = Some("other/vlan2".into());
        assert_eq!(resolved(&attachment), Some(("other".to_owned(), "vlan2".to_owned())));
        attachment.network_attachment_namespace = Some("third".into());
        assert_eq!(resolved(&attachment), Some(("third".to_owned(), "vlan2".to_owned())));
        assert_eq!(resolved(&NetworkAttachment::default()), None);
    }
}
