//! Names: of objects, of hosts, of images, of container networks.

use crate::text::text;

text! {
    /// A DNS label: names of Services, namespaces and list entries.
    Label, max 63,
    rule "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    says "is not a DNS label; use lower-case letters, digits and '-', beginning and ending with a letter or digit, at most 63 long"
}

text! {
    /// The name of a Kubernetes object: a DNS name.
    ObjectName, max 253,
    rule "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
    says "is not an object name; use lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
}

text! {
    /// A DNS domain or host name, lower-case, without a trailing dot.
    DomainName, max 253,
    rule "self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$') && !isIP(self)",
    says "is not a DNS name; write it in lower case without a trailing dot, for example api.cluster.example.com"
}

text! {
    /// A DNS name, or all names below one: `api.example.com`, `*.apps.example.com`.
    HostPattern, max 253,
    rule "self.matches('^([*][.])?[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$') && !isIP(self)",
    says "is not a host name; write it in lower case without a trailing dot, for example api.example.com, or *.apps.example.com for all \
          names below apps.example.com"
}

text! {
    /// A NetworkAttachmentDefinition: `name`, or `namespace/name`.
    AttachmentReference, max 317,
    rule "self.matches('^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
    says "is not the name of a NetworkAttachmentDefinition; write its name, or namespace/name, for example tenant-vlan-100"
}

text! {
    /// A container image.
    Image, max 512,
    rule "self.matches('^[a-z0-9][a-zA-Z0-9._:/@-]*$')",
    says "is not a container image; write a reference such as registry.example.com/team/image:tag, without spaces"
}

text! {
    /// The name of a network or interface outside Kubernetes, as container engines allow it.
    EngineName, max 128,
    rule "self.matches('^[a-zA-Z0-9][a-zA-Z0-9_.-]*$')",
    says "is not a name that container engines accept; use letters, digits, '_', '.' and '-', beginning with a letter or digit"
}

text! {
    /// The value of a label, such as the one that asks for a gateway.
    LabelValue, max 63,
    rule "self.matches('^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$')",
    says "cannot be the value of a label; use letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
}

text! {
    /// A folder inside a container.
    AbsolutePath, max 1024,
    rule "self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",
    says "is not an absolute path; begin with '/' and leave out '..', for example /var/run/secrets"
}

text! {
    /// A WireGuard public key.
    PublicKey, max 44,
    rule "self.matches('^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$')",
    says "is not a WireGuard public key; write the 44 characters that `wg pubkey` prints (never a private key)"
}
