//! What the kernel says about this process.

/// None of it is worth failing for: without a `/proc` it is left out.
pub(super) struct Figures {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) open_files: usize,
    pub(super) threads: u64,
}

impl Figures {
    pub(super) fn read() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name in parentheses may hold anything; after it the third field begins.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
        let ticks = field(14)? + field(15)?;
        let page = u64::try_from(rustix::param::page_size()).ok()?;
        Some(Self {
            cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            resident_bytes: field(24)? * page,
            open_files: std::fs::read_dir("/proc/self/fd").ok()?.count(),
            threads: field(20)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_this_process() {
        let figures = Figures::read().unwrap();
        assert!(figures.resident_bytes > 100_000 && figures.open_files > 2 && figures.threads > 0);
    }
}
