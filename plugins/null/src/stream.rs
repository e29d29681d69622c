//! A stream of work; here there never is any, because the device claims no op.

use llmrt_plugin::{Error, GraphView, Result, Stream};

/// A stream that refuses every node.
pub struct NullStream;

impl Stream for NullStream {
    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        match graph.nodes().next() {
            None => Ok(()),
            Some(node) => {
                let what = node.op().map_or_else(|| node.op_id().to_string(), |op| op.name().to_string());
                Err(Error::unsupported(format!("this device runs no op, and was given {what}")).at_node(0))
            }
        }
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }
}
