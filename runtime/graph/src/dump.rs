//! A graph as text, one line per node: `%5 rms_norm [64, 5] F32 <- %3 x, %4 blk.0.attn_norm.weight; eps=0.00001`.

use crate::graph::{Graph, Node};
use crate::tensor::{Kind, Tensor, TensorDef};
use llmrt_abi::op;
use std::fmt::{Display, Formatter, Result};

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter) -> Result {
        self.nodes.iter().try_for_each(|node| {
            let def = self.def(node.dst);
            write!(f, "%{} {} {:?} {} <- ", node.dst.0, node.op, dims(def), def.dtype)?;
            write_sources(f, self, node)?;
            write_params(f, node)?;
            if def.output {
                write!(f, " -> {}", def.name)?;
            }
            writeln!(f)
        })
    }
}

fn write_sources(f: &mut Formatter, graph: &Graph, node: &Node) -> Result {
    for (i, src) in node.src.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        match src {
            Some(t) => write_source(f, graph, *t)?,
            None => f.write_str("-")?,
        }
    }
    Ok(())
}

/// `%3 name` of what is not computed, `%7` of what is, `%8 [4, 2] of %7+16` of a view from byte 16.
fn write_source(f: &mut Formatter, graph: &Graph, t: Tensor) -> Result {
    let def = graph.def(t);
    match def.view {
        Some((base, offset)) => {
            write!(f, "%{} {:?} of ", t.0, dims(def))?;
            write_source(f, graph, base)?;
            if offset > 0 { write!(f, "+{offset}") } else { Ok(()) }
        }
        None if def.kind == Kind::Computed => write!(f, "%{}", t.0),
        None => write!(f, "%{} {}", t.0, def.name),
    }
}

/// `; eps=0.00001, …`: the fields of the op's params struct.
fn write_params(f: &mut Formatter, node: &Node) -> Result {
    let info = op::PARAMS.iter().find(|info| info.c_name == node.op.info().params);
    let Some(info) = info else { return Ok(()) };
    for (i, ((field, ty, _), word)) in info.fields.iter().zip(node.params.chunks_exact(4)).enumerate() {
        let bits = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        write!(f, "{} {field}=", if i == 0 { ";" } else { "," })?;
        match *ty {
            "f32" => write!(f, "{}", f32::from_bits(bits))?,
            "i32" => write!(f, "{}", bits as i32)?,
            _ => write!(f, "{bits}")?,
        }
    }
    Ok(())
}

fn dims(def: &TensorDef) -> &[u64] {
    &def.ne[..def.n_dims()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Role;
    use llmrt_abi::DType;

    #[test]
    fn a_block_reads_line_by_line() {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[64, 5]);
        let norm = g.weight("blk.0.attn_norm.weight", DType::F32, &[64], Role::Norm);
        let h = g.rms_norm(x, norm, 1e-5);
        let qkv = g.weight("blk.0.attn_qkv.weight", DType::Q8_0, &[64, 96], Role::Matrix);
        let qkv = g.mul_mat(qkv, h);
        let k = g.slice(qkv, 0, 32, 32);
        let k = g.split_heads(k, 2);
        let k = g.cont(k);
        let y = g.layer_norm(k, None, None, 0.5);
        g.output(y, "k");
        assert_eq!(
            g.finish().unwrap().to_string(),
            "%2 rms_norm [64, 5] F32 <- %0 x, %1 blk.0.attn_norm.weight; eps=0.00001\n\
             %4 mul_mat [96, 5] F32 <- %3 blk.0.attn_qkv.weight, %2\n\
             %7 copy [16, 2, 5] F32 <- %6 [16, 2, 5] of %4+128; dtype=0\n\
             %8 layer_norm [16, 2, 5] F32 <- %7, -, -; eps=0.5 -> k\n"
        );
    }
}
