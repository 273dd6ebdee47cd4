// Stands in for Spark's token provider (spark-token-provider-kafka-0-10), of which the Kafka connector calls these three
// classes to add delegation tokens to its clients' settings. There are no tokens here: settings pass through.
// Only used where Maven does not give the real one.
package org.apache.spark.kafka010

import java.util.{HashMap => JavaMap}

import org.apache.spark.SparkConf

class KafkaConfigUpdater(module: String, given: Map[String, Object]) {
  private val settings = new JavaMap[String, Object]()
  given.foreach { case (name, value) => settings.put(name, value) }

  def set(name: String, value: Object): KafkaConfigUpdater = {
    settings.put(name, value)
    this
  }

  def setIfUnset(name: String, value: Object): KafkaConfigUpdater = {
    settings.putIfAbsent(name, value)
    this
  }

  def setAuthenticationConfigIfNeeded(): KafkaConfigUpdater = this

  def setAuthenticationConfigIfNeeded(cluster: Option[AnyRef]): KafkaConfigUpdater = this

  def build(): java.util.Map[String, Object] = settings
}

object KafkaTokenUtil {
  def findMatchingTokenClusterConfig(conf: SparkConf, servers: String): Option[AnyRef] = None

  def needTokenUpdate(settings: java.util.Map[String, Object], cluster: Option[AnyRef]): Boolean = false
}

object KafkaRedactionUtil {
  def redactParams(params: Seq[(String, Object)]): Seq[(String, String)] =
    params.map { case (name, value) => (name, String.valueOf(value)) }
}
