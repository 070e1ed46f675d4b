/// A test per engine for each of these functions, which take the engine's kind.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod podman {
            $(#[test] fn $test() { super::$test(underpass_engines::EngineKind::Podman); })*
        }
        mod docker {
            $(#[test] fn $test() { super::$test(underpass_engines::EngineKind::Docker); })*
        }
    };
}

pub(super) use on_both;
