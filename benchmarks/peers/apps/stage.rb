# What stage.py and report.py do in Python, here for Ruby. The standard library only.
require "json"
require "socket"

module Stage
  CHUNK = 10_000
  THREADS = 5
  IO_SECONDS = 0.005
  CPU_SECONDS = 0.001
  QUICK = 0.001
  SLOW = 0.2
  EVERY = ENV.fetch("BENCH_EVERY", "0.02").to_f
  SINGLE_RATE = 2_000
  STAMPED_RATE = 1_000
  TICK = 0.005

  def self.now
    Process.clock_gettime Process::CLOCK_MONOTONIC
  end

  # The measured job: does what BENCH_JOB says, and is counted.
  class MeasuredJob
    def initialize
      @kind = ENV.fetch "BENCH_JOB", "blank"
      @done = Thread::Queue.new
      @performs = Thread::Queue.new
      @latencies = Thread::Queue.new
      Thread.new { tell }
    end

    def call(payload)
      @latencies << Stage.now - payload["at"] if payload["at"]
      case @kind
      when "io" then sleep payload.fetch("sleep", IO_SECONDS)
      when "cpu" then burn
      end
      @done << nil
    end

    def performed
      @performs << nil
    end

    private

    def tell
      host, port = ENV.fetch("BENCH_REPORT").split ":"
      report = TCPSocket.new host, port.to_i
      loop do
        sleep EVERY
        word = { t: Stage.now, done: drain(@done).size, performs: drain(@performs).size, latencies: drain(@latencies) }
        report.puts word.to_json if word[:done].positive? || word[:latencies].any?
      end
    end

    def drain(queue)
      Array.new(queue.size) { queue.pop }
    end

    def burn
      until_used = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + CPU_SECONDS
      nil while Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) < until_used
    end
  end

  # Enqueues what it is told on standard input; see stage.py for the commands.
  class Producer
    def initialize(one, many)
      @one = one
      @many = many
      @number = 0
    end

    def run
      $stdout.sync = true
      puts "{}"
      $stdin.each_line do |line|
        command = JSON.parse line
        started = Stage.now
        before = @number
        numbers = command.values_at("seconds", "rate", "slow").map(&:to_f)
        obey command["do"], command.fetch("jobs", 0).to_i, *numbers
        puts({ jobs: @number - before, seconds: Stage.now - started }.to_json)
      end
    end

    private

    def obey(what, jobs, seconds, rate, slow)
      case what
      when "bulk" then bulk(jobs) { |n| { "n" => n } }
      when "small" then bulk(jobs) { |n| format "%08d", n }
      when "hot" then hot jobs
      when "single"
        started = Stage.now
        one({ "n" => 1 }) while Stage.now < started + seconds
      when "idle"
        jobs.times do
          sleep 0.01 + rand * 0.02
          one({ "at" => Stage.now })
        end
      when "paced" then paced seconds, rate
      when "mixed" then mixed seconds, rate, slow
      end
    end

    def id
      @number += 1
      format "%010d", @number
    end

    def one(payload)
      @one.call id, payload
    end

    def bulk(jobs)
      (0...jobs).each_slice(CHUNK) { |slice| @many.call(slice.map { |n| [id, yield(n)] }) }
    end

    def hot(jobs)
      dice = Random.new 1
      ids = [100, jobs / 10].max
      (0...jobs).each_slice(CHUNK) do |slice|
        @many.call(slice.map { |n| [format("%010d", dice.rand(dice.rand < 0.9 ? ids / 100 : ids)), { "n" => n }] })
        @number += slice.size
      end
    end

    def mixed(seconds, rate, slow)
      started = Stage.now
      dice = Random.new 1
      due = -Math.log(1 - dice.rand) / rate
      while due < seconds
        sleep [0, started + due - Stage.now].max
        one({ "at" => Stage.now, "sleep" => dice.rand * 1000 < slow ? SLOW : QUICK })
        due -= Math.log(1 - dice.rand) / rate
      end
    end

    def paced(seconds, rate)
      started = Stage.now
      stamped = [1, (rate / STAMPED_RATE).round].max
      sent = 0
      while (at = Stage.now) < started + seconds
        due = ((at - started) * rate).to_i
        if due > sent && rate <= SINGLE_RATE
          one({ "at" => at })
          sent += 1
        elsif due > sent
          marks = (sent...[due, sent + CHUNK].min)
          @many.call(marks.map { |mark| [id, (mark % stamped).zero? ? { "at" => at } : { "n" => 1 }] })
          sent += marks.size
        else
          rest = (sent + 1) / rate.to_f - (at - started)
          sleep(rate <= SINGLE_RATE ? rest.clamp(0.0001, TICK) : TICK)
        end
      end
    end
  end
end
