//! The beginning of a stream, with any bytes whatsoever.

use proptest::prelude::*;
use underpass_protocols::stream_header::LENGTH;

use crate::invariants;

proptest! {
    #[test]
    fn what_is_read_is_what_would_be_written(mut bytes: [u8; LENGTH], likely: bool) {
        if likely {
            bytes[0] = 1;
            bytes[1] = if bytes[1].is_multiple_of(2) { 4 } else { 6 };
            bytes[20..].iter_mut().for_each(|byte| *byte &= 1);
        }
        invariants::stream_header(&bytes);
    }
}
