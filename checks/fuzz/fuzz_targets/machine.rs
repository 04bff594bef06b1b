//! Whatever is in a machine's file, it is a machine, which is written and read again as itself, or
//! one sentence.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mely_hardware::Machine;

// The lines of a file that is right, some of them replaced: a byte for the line, then the line.
fuzz_target!(|data: &[u8]| {
    let good = Machine::shipped("epyc-2x64").unwrap().to_text();
    let mut lines: Vec<String> = good.lines().map(str::to_owned).collect();
    for edit in data.split(|&byte| byte == b'\n') {
        let [at, line @ ..] = edit else { continue };
        let at = usize::from(*at) % (lines.len() + 1);
        let line = String::from_utf8_lossy(line).into_owned();
        if at == lines.len() {
            lines.push(line);
        } else {
            lines[at] = line;
        }
    }
    match Machine::parse(&lines.join("\n")) {
        Ok(machine) => assert_eq!(Machine::parse(&machine.to_text()), Ok(machine)),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});
