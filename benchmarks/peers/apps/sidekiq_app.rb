# Sidekiq: five threads, push_bulk, hiredis in place of the Ruby driver.
require "sidekiq"
require_relative "stage"

begin
  require "hiredis-client" # from Sidekiq 7 on: it becomes redis-client's driver
  SETTINGS = { url: ENV.fetch("BENCH_REDIS") }.freeze
rescue LoadError
  require "hiredis"
  SETTINGS = { url: ENV.fetch("BENCH_REDIS"), driver: :hiredis }.freeze
end

Sidekiq.configure_client { |config| config.redis = SETTINGS }
Sidekiq.configure_server do |config|
  config.redis = SETTINGS
  config.logger.level = Logger::ERROR
end

class Bench
  include(defined?(Sidekiq::Job) ? Sidekiq::Job : Sidekiq::Worker)

  MEASURED = Stage::MeasuredJob.new if Sidekiq.server?

  def perform(_id, payload)
    MEASURED.call payload
  end
end

if $PROGRAM_NAME == __FILE__
  if ARGV[0] == "work"
    exec Gem.ruby, Gem.bin_path("sidekiq", "sidekiq"), "-r", __FILE__, "-c", Stage::THREADS.to_s
  else
    one = ->(id, payload) { Bench.perform_async id, payload }
    many = ->(jobs) { Sidekiq::Client.push_bulk "class" => Bench, "args" => jobs }
    Stage::Producer.new(one, many).run
  end
end
