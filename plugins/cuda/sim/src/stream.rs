//! Streams: queues that run at once, or only as far as a thread waits. Deterministic: there are no threads.

use crate::space::copy;
use crate::sys::*;
use crate::task::Task;
use crate::world::{Answer, World};
use std::collections::VecDeque;
use std::thread::ThreadId;

/// A stream.
pub struct Stream {
    /// Its device.
    pub device: usize,
    /// What has not run.
    queue: VecDeque<Task>,
    /// Tasks ever enqueued, and run.
    pub n_enqueued: u64,
    n_done: u64,
    /// Work goes here instead, while a capture lasts.
    pub capture: Option<Capture>,
}

/// A capture that has begun.
pub struct Capture {
    /// Only this thread may end it, and must not call what a capture cannot have.
    pub thread: ThreadId,
    /// What was recorded.
    pub tasks: Vec<Task>,
    /// A forbidden call was made.
    pub invalid: bool,
}

impl Stream {
    /// An empty one.
    pub fn new(device: usize) -> Stream {
        Stream { device, queue: VecDeque::new(), n_enqueued: 0, n_done: 0, capture: None }
    }

    /// Whether everything up to a place has run.
    pub fn is_past(&self, place: u64) -> bool {
        self.n_done >= place
    }
}

impl World {
    /// Puts work into a stream, or into its capture.
    pub fn enqueue(&mut self, id: usize, task: Task) -> Answer {
        let late = self.config.late;
        let stream = self.streams.get_mut(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(capture) = &mut stream.capture {
            capture.tasks.push(task);
            return Ok(());
        }
        stream.queue.push_back(task);
        stream.n_enqueued += 1;
        let end = stream.n_enqueued;
        if late { Ok(()) } else { self.run_to(id, end) }
    }

    /// Runs a stream's work up to a place. What fails leaves its mark on the device.
    pub fn run_to(&mut self, id: usize, place: u64) -> Answer {
        while let Some(stream) = self.streams.get_mut(&id)
            && stream.n_done < place
        {
            let (device, Some(task)) = (stream.device, stream.queue.pop_front()) else { break };
            stream.n_done += 1;
            if self.devices[device].sticky == 0
                && let Err(code) = self.execute(task)
            {
                self.devices[device].sticky = code;
            }
        }
        Ok(())
    }

    /// Runs all that a stream holds; then its device must be well.
    pub fn finish(&mut self, id: usize) -> Answer {
        let stream = self.streams.get(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let (device, end) = (stream.device, stream.n_enqueued);
        self.run_to(id, end)?;
        match self.devices[device].sticky {
            0 => Ok(()),
            code => Err(code),
        }
    }

    /// Work of a call that may return before it is done: not ordered with streams, after other such work of the card.
    pub fn do_on_default_stream(&mut self, device: usize, task: Task) -> Answer {
        self.devices[device].default_stream.push(task);
        if self.config.late { Ok(()) } else { self.finish_default_stream(device) }
    }

    /// Runs what such calls left; then the device must be well.
    pub fn finish_default_stream(&mut self, device: usize) -> Answer {
        for task in std::mem::take(&mut self.devices[device].default_stream) {
            if self.devices[device].sticky == 0
                && let Err(code) = self.execute(task)
            {
                self.devices[device].sticky = code;
            }
        }
        match self.devices[device].sticky {
            0 => Ok(()),
            code => Err(code),
        }
    }

    fn execute(&mut self, task: Task) -> Answer {
        match task {
            Task::Launch { kernel, params, grid, threads, shared } => {
                self.n_kernels += 1;
                if self.n_kernels == self.config.fault.0 {
                    return Err(self.config.fault.1);
                }
                let (slow_from, micros) = self.config.slow;
                if slow_from > 0 && self.n_kernels >= slow_from {
                    std::thread::sleep(std::time::Duration::from_micros(micros));
                }
                if kernel.name() == self.config.idle {
                    return Ok(());
                }
                if !self.config.launches.is_empty() {
                    return self.record(kernel, &params, grid, (threads, shared));
                }
                crate::emu::run(kernel, &params, grid, (threads, shared), &self.space).map_err(|problem| {
                    self.report(problem);
                    CUDA_ERROR_ILLEGAL_ADDRESS
                })
            }
            Task::Product(product) => self.multiply(&product),
            Task::Write(to, bytes) => {
                copy(self.device_bytes(to, bytes.len())?, bytes.as_ptr(), bytes.len());
                Ok(())
            }
            Task::FromHost(to, from, n) => {
                copy(self.device_bytes(to, n)?, from as *const u8, n);
                Ok(())
            }
            Task::ToHost(to, from, n) => {
                copy(to as *mut u8, self.device_bytes(from, n)?, n);
                Ok(())
            }
            Task::Copy(to, from, n) => {
                copy(self.device_bytes(to, n)?, self.device_bytes(from, n)?, n);
                Ok(())
            }
            Task::Wait(stream, place) => self.run_to(stream, place),
            Task::Graph(id) => {
                let tasks = self.execs.get(&id).map(|exec| exec.tasks.clone()).unwrap_or_else(|| {
                    self.report("a graph was destroyed before it ran".into());
                    Vec::new()
                });
                tasks.into_iter().try_for_each(|task| self.execute(task))
            }
            Task::Fill(to, byte, n) => {
                let to = self.device_bytes(to, n)?;
                // SAFETY: as many bytes of a card, which only the world uses.
                unsafe { to.write_bytes(byte, n) };
                Ok(())
            }
            Task::Mark => Ok(()),
        }
    }

    /// Bytes of the device when work comes to them.
    pub fn device_bytes(&mut self, at: u64, n: usize) -> Result<*mut u8, CUresult> {
        let found = self.space.bytes(at, n).map(|(_, bytes)| bytes);
        found.ok_or_else(|| {
            self.report(format!("a copy of {n} bytes at {at:x}, which are not the device's"));
            CUDA_ERROR_ILLEGAL_ADDRESS
        })
    }
}
