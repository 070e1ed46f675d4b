//! Kubernetes' protobuf form of its own kinds, from and to the JSON form.
//!
//! Go clients send it: kubectl for all that it makes itself (`kubectl create deployment`), controllers for everything. The rest of the
//! server knows JSON only, so bodies are translated at the edge. `decode` gives what Go's JSON encoder would have written for the same
//! object: a pointer to zero is kept, an omitted-when-empty zero is left out, a struct that is always there is there.
//!
//! One codec walks a table of numbers, names and types (`messages.txt`, made by `scripts/protobuf-table`). Generated Rust types were
//! rejected: some ten thousand lines, which would still have to be turned into JSON and do not know what JSON leaves out.

mod decode;
mod encode;
mod envelope;
mod error;
mod leaves;
mod table;
mod wire;

pub use envelope::{decode, encode, watch_frame};
pub use error::{Problem, ProtobufError};

pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// As many messages inside each other as a document may have. The deepest honest ones are the schemas of custom kinds.
const MOST_DEPTH: usize = 64;
