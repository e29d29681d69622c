//! What divided neurons are predicted to take of the time of a token, by rates of devices that are measured now.

use llmrt_engine::neurons::{NeuronTimes, Rate};
use llmrt_host::Device;
use std::sync::Arc;

/// `neurons take 3.1 ms of a token, predicted: 1.9 ms on cuda:0 (20.1 GB/s, 12 µs a divided layer), 2.5 ms on cpu (21.0 GB/s)`
pub fn times_line(devices: &[Arc<Device>], times: &NeuronTimes) -> String {
    let ms = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
    let of_device = |((device, seconds), rate): ((&Arc<Device>, &f64), &Rate)| {
        let cost = match rate.seconds_per_layer {
            0.0 => String::new(),
            cost => format!(", {:.0} µs for a divided layer", cost * 1e6),
        };
        format!("{} on {} ({:.2} GB/s{cost})", ms(*seconds), device.name(), rate.bytes_per_second / 1e9)
    };
    let each: Vec<_> = devices.iter().zip(&times.by_device).zip(&times.rates).map(of_device).collect();
    format!("neurons take {} of a token, predicted: {}", ms(times.all), each.join(", "))
}
