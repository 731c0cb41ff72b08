//! Runs seeds.
fn main() {
    let seed: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1);
    let n: u64 = std::env::args().nth(2).and_then(|a| a.parse().ok()).unwrap_or(1);
    for seed in seed..seed + n {
        let report = evenkeel::simulation::run(&evenkeel::simulation::Request { seed, tells: n == 1, ..Default::default() });
        for line in &report.story { println!("{line}"); }
        if n == 1 || report.violation.is_some() { println!("{:?}", evenkeel::simulation::Report { story: vec![], ..report }); }
    }
}
