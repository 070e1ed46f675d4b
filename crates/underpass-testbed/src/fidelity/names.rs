//! Which name leads where, and that nothing is routed by guess.

use super::Case;
use super::conn::Outcome;
use super::lane::{Lane, OTHER, OWN, PARENT, Setup, Which};
use crate::hello::{Hello, record};

pub(super) const CASES: &[Case] = &[
    Case::new("name: two backends", "each name of a port has its own backend", Setup::Named, |lane| {
        leads(lane, OWN, Which::Own)?;
        leads(lane, OTHER, Which::Other)
    }),
    Case::new("name: upper case", "names are compared without case", Setup::Named, |lane| {
        leads(lane, "OwN.EXAMPLE.test", Which::Own)
    }),
    Case::new("name: trailing dot", "a trailing dot changes nothing", Setup::Named, |lane| {
        leads(lane, "own.example.test.", Which::Own)
    }),
    Case::new("name: wildcard, one label", "a wildcard covers a label", Setup::Named, |lane| {
        leads(lane, &format!("shop.{PARENT}"), Which::Below)
    }),
    Case::new("name: wildcard, two labels", "and more than one", Setup::Named, |lane| {
        leads(lane, &format!("a.shop.{PARENT}"), Which::Below)
    }),
    Case::new("name: wildcard, upper case", "without case too", Setup::Named, |lane| {
        leads(lane, &format!("SHOP.{}", PARENT.to_uppercase()), Which::Below)
    }),
    Case::new("name: wildcard, parent", "but never the parent itself", Setup::Named, |lane| refused(lane, PARENT)),
    Case::new("name: wildcard, half a label", "nor a name that only ends alike", Setup::Named, |lane| {
        refused(lane, &format!("evil{PARENT}"))
    }),
    Case::new("name: unknown", "an unknown name is refused, and no backend hears of it", Setup::Named, |lane| {
        refused(lane, "nobody.example.test")
    }),
    Case::new(
        "name: unknown beside a default",
        "also where connections without a name are taken",
        Setup::Unnamed,
        |lane| refused(lane, "nobody.example.test"),
    ),
    Case::new("name: unknown is counted", "who looks at the counters sees it", Setup::Counted, counted),
    Case::new("name: none", "without a name and without a default it is refused", Setup::Named, |lane| {
        lane.expect_refused(&Hello::unnamed().bytes())
    }),
    Case::new("name: none, with a default", "without a name it goes to the default", Setup::Unnamed, |lane| {
        reaches(lane, &Hello::unnamed().marked(1), Which::Unnamed)
    }),
    Case::new("name: IP literal", "an address is no name: it goes to the default", Setup::Unnamed, |lane| {
        leads(lane, "192.0.2.7", Which::Unnamed)
    }),
    Case::new("name: IP literal, no default", "and is refused where there is none", Setup::Named, |lane| {
        refused(lane, "192.0.2.7")
    }),
    Case::new("name: NUL inside", "a name that is cut by a NUL is refused", Setup::Named, |lane| {
        lane.expect_refused(&Hello::to_bytes(b"own.example.test\0.evil.test").bytes())
    }),
    Case::new("name: empty", "an empty name is refused", Setup::Named, |lane| {
        lane.expect_refused(&Hello::to_bytes(b"").bytes())
    }),
    Case::new("hello: broken lengths", "a hello that contradicts itself is refused", Setup::Named, broken_lengths),
    Case::new("hello: an alert instead", "TLS that begins with something else is refused", Setup::Named, |lane| {
        lane.expect_refused(&[21, 3, 3, 0, 2, 2, 40])
    }),
    Case::new("hello: SSLv2", "a hello from before TLS is refused", Setup::Named, |lane| lane.expect_refused(&sslv2())),
];

fn leads(lane: &Lane<'_>, name: &str, which: Which) -> Outcome {
    reaches(lane, &lane.hello_to(name), which)
}

fn reaches(lane: &Lane<'_>, hello: &Hello, which: Which) -> Outcome {
    let mut client = lane.connect()?;
    client.send(&hello.bytes())?;
    let mut backend = lane.accept_with(which, &hello.bytes())?;
    backend.send(b"answer")?;
    client.expect(b"answer")
}

fn refused(lane: &Lane<'_>, name: &str) -> Outcome {
    lane.expect_refused(&lane.hello_to(name).bytes())
}

fn counted(lane: &Lane<'_>) -> Outcome {
    let before = lane.running.refusals();
    refused(lane, "nobody.example.test")?;
    let after = lane.running.refusals();
    if after > before { Ok(()) } else { Err(format!("the counters went from {before:?} to {after:?}")) }
}

/// The handshake message is longer than its extensions say.
fn broken_lengths(lane: &Lane<'_>) -> Outcome {
    let mut message = lane.hello().message();
    let length_of_suites = 4 + 2 + 32 + 1 + 32;
    message[length_of_suites] = 0xff;
    lane.expect_refused(&record(&message))
}

fn sslv2() -> Vec<u8> {
    let mut hello = vec![0x80, 46, 1, 3, 1, 0, 21, 0, 0, 0, 16];
    hello.extend([7; 21 + 16]);
    hello
}
