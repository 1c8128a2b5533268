//! Fair queueing between clients: they take turns by the number of items computed for them, so that a client with many
//! requests does not block another. Source: Goyal, Vin and Cheng, Start-time fair queueing, SIGCOMM 1996.

use crate::request_memory::ClientId;

/// The clients with requests in a queue. There are few at a time, usually one.
#[derive(Debug, Default)]
pub(crate) struct ClientFairQueue(Vec<ClientQueueShare>);

#[derive(Debug)]
struct ClientQueueShare {
    id: ClientId,
    waiting: usize,
    /// Items computed for this client since it entered the queue, plus the minimum over the other clients at that time.
    items: u64,
}

impl ClientFairQueue {
    /// Records that a request of this client is queued.
    pub(crate) fn add_request(&mut self, id: ClientId) {
        match self.0.iter_mut().find(|client| client.id == id) {
            Some(client) => client.waiting += 1,
            None => {
                let items = self.0.iter().map(|client| client.items).min().unwrap_or(0);
                self.0.push(ClientQueueShare { id, waiting: 1, items });
            }
        }
    }

    /// Records that a request of this client has left the queue. `items` is its number of items, or 0 if it was
    /// withdrawn.
    pub(crate) fn remove_request(&mut self, id: ClientId, items: usize) {
        let Some(at) = self.0.iter().position(|client| client.id == id) else { return };
        let client = &mut self.0[at];
        client.waiting -= 1;
        client.items = client.items.saturating_add(items as u64);
        if client.waiting == 0 {
            self.0.swap_remove(at);
        }
    }

    /// Returns the position of the next request. `requests` yields positions and clients in arrival order.
    pub(crate) fn next_position(&self, mut requests: impl Iterator<Item = (usize, ClientId)>) -> Option<usize> {
        if self.0.len() <= 1 {
            return requests.next().map(|(at, _)| at);
        }
        let items = |id: ClientId| self.0.iter().find(|client| client.id == id).map_or(0, |client| client.items);
        requests.min_by_key(|&(at, id)| (items(id), at)).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_request_waits_for_at_most_one_of_a_busy_client() {
        let [many, one] = [ClientId(1), ClientId(2)];
        let mut turns = ClientFairQueue::default();
        let mut waiting = vec![many; 5];
        waiting.iter().for_each(|&id| turns.add_request(id));
        let take = |turns: &mut ClientFairQueue, waiting: &mut Vec<ClientId>, items| {
            let at = turns.next_position(waiting.iter().copied().enumerate()).unwrap();
            let id = waiting.remove(at);
            turns.remove_request(id, items);
            id
        };
        assert_eq!(take(&mut turns, &mut waiting, 100), many);
        waiting.push(one);
        turns.add_request(one);
        assert_eq!(take(&mut turns, &mut waiting, 100), many, "the earliest of equals");
        assert_eq!(take(&mut turns, &mut waiting, 1), one);
        assert_eq!(take(&mut turns, &mut waiting, 100), many);
        turns.remove_request(many, 0);
        assert_eq!(take(&mut turns, &mut waiting, 100), many);
        assert!(turns.0.is_empty());
    }

    #[test]
    fn clients_share_the_queue_by_items() {
        let [large, small] = [ClientId(1), ClientId(2)];
        let mut turns = ClientFairQueue::default();
        let mut waiting = [[large, small]; 20].concat();
        waiting.iter().for_each(|&id| turns.add_request(id));
        let mut request_counts = [0, 0];
        for _ in 0..15 {
            let at = turns.next_position(waiting.iter().copied().enumerate()).unwrap();
            let id = waiting.remove(at);
            let is_large = id == large;
            turns.remove_request(id, if is_large { 8 } else { 1 });
            request_counts[usize::from(is_large)] += 1;
        }
        assert_eq!(request_counts, [13, 2]);
    }
}
