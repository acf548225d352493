# Leaves in an empty Redis what lowkiq_ruby.json has: run once, with lowkiq 1.2.2 for Ruby 3.1 and redis 4.8.
require "lowkiq"
Lowkiq.redis = ->() { Redis.new url: "redis://127.0.0.1:6379/0" }
module OrderSync
  extend Lowkiq::Worker
  self.shards_count = 3
  self.batch_size = 2
  self.max_retry_count = 1
  def self.retry_in(n) = 1000
  def self.perform(batch)
    fail "the bank refuses" if batch.key?("17") || batch.key?("dead")
  end
end
Lowkiq.workers = [OrderSync]
Lowkiq.server_redis_pool.with { |r| Lowkiq::Script.load! r }
far = 4_000_000_000.25
OrderSync.perform_async [
  {id: 17, payload: {state: "paid", "total" => 1.5, items: [1, -300, 2**70, nil, true, false]}, score: 1},
  {id: "dead", payload: "v1", score: 1}, {id: "dead", payload: "v2", score: 2},
]
handlers = Lowkiq.shard_handlers
handlers.each(&:process)
# A second failure buries what failed: max_retry_count is 1.
OrderSync.client_actions.perform_all_jobs_now
handlers.each(&:process)
OrderSync.perform_async [
  {id: 17, payload: {state: "sent", symbol: :fast, text: "naïve"}, score: 2, perform_in: far},
  {id: "later", payload: [{"a" => :b}, "a" * 300], score: 5.5, perform_in: far},
  {id: "empty"},
  {id: "lost", payload: {n: 1}, score: 1}, {id: "lost", payload: {n: 2}, score: 2},
]
# A node that dies in the middle of a job leaves it in processing.
q = OrderSync.client_queue
shard = Zlib.crc32("lost") % 3
h = q.pop(shard, limit: 10)
OrderSync.perform_async [{id: "lost", payload: {n: 3}, score: 3}]
