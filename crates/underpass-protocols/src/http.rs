//! Does a connection begin like HTTP? Asked so that a browser on a TLS port gets an answer that it can show.

/// Every way in which a request that we know can begin: a method and the space after it; the last one is HTTP/2's preface.
const BEGINNINGS: [&[u8]; 10] =
    [b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PATCH ", b"TRACE ", b"PRI "];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sniffed {
    /// It may become HTTP; with `need` bytes in total it may be decided.
    Incomplete {
        need: usize,
    },
    Http,
    Other,
}

/// Tells HTTP by its method. Other protocols may use the same words: this says what to answer, never where to route.
pub fn sniff(bytes: &[u8]) -> Sniffed {
    if BEGINNINGS.iter().any(|beginning| bytes.starts_with(beginning)) {
        return Sniffed::Http;
    }
    let possible = BEGINNINGS.iter().any(|beginning| beginning.starts_with(bytes));
    // Any next byte may be one that no request has.
    if possible { Sniffed::Incomplete { need: bytes.len() + 1 } } else { Sniffed::Other }
}
