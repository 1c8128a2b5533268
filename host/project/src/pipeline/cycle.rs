//! Cycles in a graph of steps or pipelines.

/// Returns the nodes in an order in which each comes after those that it depends on. `edges[n]` are the nodes that `n`
/// depends on.
///
/// Iterative depth-first search, so that a long chain does not exhaust the stack.
///
/// # Errors
/// The nodes of one cycle, in order.
pub(crate) fn dependency_order(edges: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum NodeMark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![NodeMark::New; edges.len()];
    let mut order = Vec::with_capacity(edges.len());
    for start in 0..edges.len() {
        if marks[start] != NodeMark::New {
            continue;
        }
        marks[start] = NodeMark::OnPath;
        // The path from the start, each with the number of its edges that were followed.
        let mut path = vec![(start, 0)];
        while let Some((node, followed)) = path.last_mut() {
            let Some(&next) = edges[*node].get(*followed) else {
                marks[*node] = NodeMark::Done;
                order.push(*node);
                path.pop();
                continue;
            };
            *followed += 1;
            match marks[next] {
                NodeMark::Done => {}
                NodeMark::New => {
                    marks[next] = NodeMark::OnPath;
                    path.push((next, 0));
                }
                NodeMark::OnPath => {
                    let nodes: Vec<usize> = path.into_iter().map(|(node, _)| node).collect();
                    let from = nodes.iter().position(|node| *node == next).unwrap_or(0);
                    return Err(nodes[from..].to_vec());
                }
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_ordered_and_a_cycle_is_returned_in_order() {
        assert_eq!(dependency_order(&[vec![1], vec![2], vec![]]), Ok(vec![2, 1, 0]));
        assert_eq!(dependency_order(&[vec![1], vec![2], vec![1]]), Err(vec![1, 2]));
        assert_eq!(dependency_order(&[vec![0]]), Err(vec![0]));
        let chain: Vec<Vec<usize>> = (0..100_000).map(|node| if node == 0 { vec![] } else { vec![node - 1] }).collect();
        assert_eq!(dependency_order(&chain).map(|order| order.len()), Ok(100_000));
    }
}
