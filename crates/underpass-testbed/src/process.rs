//! A child process whose output is kept, and which does not outlive its value.

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{PATIENCE, wait_until};

/// How long a process that is no longer wanted may take for an orderly end.
const ORDERLY_END: Duration = Duration::from_secs(10);

/// A process that runs.
pub struct Process {
    line: String,
    child: Child,
    stdout: Captured,
    stderr: Captured,
}

/// A process that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The command, for messages.
    pub line: String,
    /// `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self::start_with(command, "")
    }

    /// Starts it and gives it `input` to read.
    pub fn start_with(command: &mut Command, input: &str) -> Self {
        let line = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {line}: {error}"));
        let stdout = Captured::of(child.stdout.take().expect("stdout is piped"));
        let stderr = Captured::of(child.stderr.take().expect("stderr is piped"));
        let mut stdin = child.stdin.take().expect("stdin is piped");
        // A process that does not read its input says why by itself.
        let _ = stdin.write_all(input.as_bytes());
        Self { line, child, stdout, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has complained about so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Whether it has not ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.status().is_none()
    }

    /// Waits until something is found in its stdout; panics when it ends before.
    #[track_caller]
    pub fn wait_for_stdout<T>(&mut self, what: &str, found: impl Fn(&str) -> Option<T>) -> T {
        self.wait_for(what, Self::stdout, found)
    }

    /// Waits until something is found in its stderr; panics when it ends before.
    #[track_caller]
    pub fn wait_for_stderr<T>(&mut self, what: &str, found: impl Fn(&str) -> Option<T>) -> T {
        self.wait_for(what, Self::stderr, found)
    }

    /// Waits until all of this stands in its stderr, which a thread reads: what it has written may not have arrived here yet.
    #[track_caller]
    pub fn wait_until_told(&mut self, parts: &[&str]) {
        for part in parts {
            self.wait_for_stderr(part, |text| text.contains(part).then_some(()));
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.line));
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(self) -> Ended {
        self.wait_within(PATIENCE)
    }

    /// Waits for its end, when that may take longer than most things.
    #[track_caller]
    pub fn wait_within(mut self, patience: Duration) -> Ended {
        let line = self.line.clone();
        let status = wait_until(&format!("the end of {line}"), patience, || self.status());
        Ended { line, code: status.code(), stdout: self.stdout.finish(), stderr: self.stderr.finish() }
    }

    #[track_caller]
    fn wait_for<T>(&mut self, what: &str, stream: fn(&Self) -> String, found: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let what = format!("{what}, from {}", self.line);
        wait_until(&what, PATIENCE + ORDERLY_END, || {
            let ended = !self.is_running();
            if let Some(result) = found(&stream(self)) {
                return Some(result);
            }
            let over = ended || Instant::now() > deadline;
            assert!(!over, "{what} did not come\nstdout:\n{}\nstderr:\n{}", self.stdout(), self.stderr());
            None
        })
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap_or_else(|error| panic!("cannot look at {}: {error}", self.line))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let deadline = Instant::now() + ORDERLY_END;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                // It may have ended just now; then there is nobody to kill.
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Ended {
    /// Its stdout, when it succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.code == Some(0), "{self}");
        self.stdout
    }

    /// Its stderr, when it succeeded: what it told on the way.
    #[track_caller]
    pub fn told(self) -> String {
        assert!(self.code == Some(0), "{self}");
        self.stderr
    }

    /// Its stderr, when it failed by itself.
    #[track_caller]
    pub fn failed(self) -> String {
        assert!(self.code.is_some_and(|code| code != 0), "{self}");
        self.stderr
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { line, code, stdout, stderr } = self;
        write!(formatter, "{line}\nexit code: {code:?}\nstdout:\n{stdout}\nstderr:\n{stderr}")
    }
}

/// A stream that a thread reads to its end.
struct Captured {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Captured {
    fn of(mut stream: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                sink.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Everything, once the writer is gone.
    fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
        self.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn both_streams_and_the_code_are_kept() {
        let ended = shell("echo out; echo err >&2; exit 3").wait();
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(3), "out\n", "err\n"));
        assert_eq!(ended.failed(), "err\n");
    }

    #[test]
    fn input_is_read_to_its_end() {
        assert_eq!(Process::start_with(&mut Command::new("cat"), "hello").wait().ok(), "hello");
    }

    #[test]
    fn a_process_goes_with_its_value() {
        let process = shell("exec sleep 1000");
        let pid = process.pid();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    #[should_panic(expected = "said before it ended")]
    fn output_that_never_comes_is_reported_with_what_came() {
        shell("echo said before it ended").wait_for_stdout("more", |text| text.contains("more").then_some(()));
    }
}
