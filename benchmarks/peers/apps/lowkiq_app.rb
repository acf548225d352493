# The original Lowkiq: five threads, five shards a process, the sequential scheduler, hiredis.
require "lowkiq"
require_relative "stage"

options = { url: ENV.fetch("BENCH_REDIS") }
begin
  require "hiredis"
  options[:driver] = :hiredis
rescue LoadError
  warn "no hiredis: the Ruby driver"
end

PROCESSES = ENV.fetch("BENCH_PROCESSES", "1").to_i
Lowkiq.redis = -> { Redis.new(**options) }
Lowkiq.threads_per_node = Stage::THREADS
Lowkiq.client_pool_size = Stage::THREADS
Lowkiq.build_scheduler = -> { Lowkiq.build_seq_scheduler }
Lowkiq.build_splitter = lambda do
  Lowkiq.build_by_node_splitter PROCESSES, ENV.fetch("NODE_NUMBER", "0").to_i
end

module Bench
  extend Lowkiq::Worker
  self.shards_count = Stage::THREADS * PROCESSES
  self.batch_size = ENV.fetch("BENCH_BATCH", "1").to_i
  self.queue_name = "bench"

  MEASURED = Stage::MeasuredJob.new if ENV["BENCH_WORKS"]

  def self.perform(payloads_by_id)
    MEASURED.performed
    payloads_by_id.each_value { |payloads| payloads.each { |payload| MEASURED.call payload } }
  end
end

Lowkiq.workers = [Bench]

if $PROGRAM_NAME == __FILE__
  if ARGV[0] == "work"
    ENV["BENCH_WORKS"] = "1"
    exec Gem.ruby, Gem.bin_path("lowkiq", "lowkiq"), "-r", __FILE__
  else
    one = ->(id, payload) { Bench.perform_async [{ id: id, payload: payload }] }
    many = ->(jobs) { Bench.perform_async(jobs.map { |id, payload| { id: id, payload: payload } }) }
    Stage::Producer.new(one, many).run
  end
end
