//! What is told: text for people, one JSON object for programs.

use crate::measure::Outcome;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::fmt::Write;

/// None: nothing was measured.
fn us(histogram: &Histogram<u64>, quantile: f64) -> Option<f64> {
    (!histogram.is_empty()).then(|| histogram.value_at_quantile(quantile) as f64 / 1e3)
}

/// None: nothing was asked for, or nothing came.
fn cpu_us(outcome: &Outcome) -> Option<f64> {
    let responses = outcome.measure.responses();
    let cpu = outcome.server_cpu.filter(|_| responses > 0)?;
    Some(cpu.as_secs_f64() * 1e6 / responses as f64)
}

/// With a line end after each line.
pub(crate) fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, outcome);
    text
}

fn write(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let measure = &outcome.measure;
    let seconds = outcome.time.as_secs_f64();
    let responses = measure.responses();
    writeln!(
        text,
        "requests: {responses} in {seconds:.2} s, {:.0} a second, {:.1} MB/s",
        responses as f64 / seconds,
        measure.bytes as f64 / seconds / 1e6
    )?;
    let quantiles = |histogram: &Histogram<u64>| {
        let us = |quantile| us(histogram, quantile);
        match (us(0.5), us(0.99), us(0.999), us(1.0)) {
            (Some(p50), Some(p99), Some(p999), Some(most)) => {
                format!("p50 {p50:.0} us, p99 {p99:.0} us, p99.9 {p999:.0} us, most {most:.0} us")
            }
            _ => "none".to_owned(),
        }
    };
    writeln!(text, "latency: {}", quantiles(&measure.latency_ns))?;
    writeln!(
        text,
        "first response of a connection: {}",
        quantiles(&measure.first_ns)
    )?;
    writeln!(
        text,
        "clients: {}, starved: {}, connections made: {}",
        measure.clients, measure.starved, measure.connections
    )?;
    let errors = &measure.errors;
    writeln!(
        text,
        "errors: {} (connect {}, closed {}, framing {}, status {}, body {}, silent {})",
        errors.sum(),
        errors.connect,
        errors.closed,
        errors.framing,
        errors.status,
        errors.body,
        errors.silent
    )?;
    if let Some(cpu_us) = cpu_us(outcome) {
        writeln!(text, "server: {cpu_us:.3} us of processor time a request")?;
    }
    Ok(())
}

/// The same, in full.
pub(crate) fn json(outcome: &Outcome) -> Value {
    let measure = &outcome.measure;
    let seconds = outcome.time.as_secs_f64();
    let (latency, first) = (&measure.latency_ns, &measure.first_ns);
    json!({
        "requests": measure.responses(),
        "seconds": seconds,
        "requests_per_second": measure.responses() as f64 / seconds,
        "bytes_per_second": measure.bytes as f64 / seconds,
        "latency_p50_us": us(latency, 0.5),
        "latency_p99_us": us(latency, 0.99),
        "latency_p999_us": us(latency, 0.999),
        "latency_max_us": us(latency, 1.0),
        "first_p50_us": us(first, 0.5),
        "first_p99_us": us(first, 0.99),
        "first_max_us": us(first, 1.0),
        "clients": measure.clients,
        "starved": measure.starved,
        "connections": measure.connections,
        "errors": measure.errors.sum(),
        "server_cpu_us_per_request": cpu_us(outcome),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Measure, sample};
    use std::time::Duration;

    fn outcome() -> Outcome {
        Outcome {
            measure: sample(),
            time: Duration::from_secs(2),
            server_cpu: Some(Duration::from_millis(5)),
        }
    }

    #[test]
    fn it_says_all_that_was_asked_for() {
        let text = text(&outcome());
        for line in [
            "requests: 1000 in 2.00 s, 500 a second, 0.5 MB/s\n",
            "latency: p50 500 us, p99 990 us, p99.9 999 us, most 1000 us\n",
            "clients: 5, starved: 1, connections made: 7\n",
            "errors: 6 (connect 0, closed 2, framing 0, status 0, body 1, silent 3)\n",
            "server: 5.000 us of processor time a request\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in:\n{text}");
        }
    }

    #[test]
    fn no_response_has_no_latency() {
        let outcome = Outcome {
            measure: Measure::default(),
            ..outcome()
        };
        let text = text(&outcome);
        assert!(text.contains("latency: none\n"), "{text}");
        assert!(text.contains("of a connection: none\n"), "{text}");
        let json = json(&outcome);
        assert!(json["latency_p50_us"].is_null() && json["first_max_us"].is_null());
    }

    #[test]
    fn what_was_not_measured_is_not_told() {
        let outcome = Outcome {
            server_cpu: None,
            ..outcome()
        };
        assert!(!text(&outcome).contains("server:"));
        assert!(json(&outcome)["server_cpu_us_per_request"].is_null());
        assert_eq!(json(&outcome)["errors"], 6);
    }
}
