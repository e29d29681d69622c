//! `libllmrt_cpu.so`: the CPU plugin with the entry symbol. A crate of its own, because a program or plugin that links
//! the kernels (as `plugins/sim` does) must not get their entry with them.

llmrt_plugin::export_plugin!(kernels::CpuDriver);
